# The verb "harvest": what is in the outbox is claimed, read, and deleted once it has arrived.
#
# .sandbox-exec/TAG/ in the outbox, as elsewhere may be another file system, is a harvest's own:
#   new/      was claimed by a rename, and nobody said yet that it arrived
#   sent/     arrived, and waits for the proof that nobody writes to it any more
#   hidden    when, and while which processes hid what they hold open, that proof was not to be had
#   old-TAG/  the same of a harvest that is no more, adopted by the next, so that nothing is lost
# A claimed file gets an old time. Who still writes to it makes it new again, and then it is
# delivered again, in its later version.

sbx_harvest() {
    sbx_max=$1 sbx_bytes=$3
    sbx_path "$2"
    trap - EXIT
    sbx_claim=.sandbox-exec/$sbx_tag
    if [ ! -e "$sbx_file" ] && [ ! -h "$sbx_file" ]; then
        sbx_say "listed 0"
        sbx_end 0 -
        return
    fi
    # A link, here or on the way, would have it read and delete elsewhere.
    cd -P "$sbx_file" && [ "$PWD" = "$sbx_file" ] || sbx_refuse "outbox"
    for sbx_v in find mv mkdir touch dd ls; do
        command -v "$sbx_v" || sbx_refuse "tools"
    done
    # Two at once could deliver the versions of a file in the wrong order.
    sbx_lock
    if [ -h .sandbox-exec ] || { [ -e .sandbox-exec ] && [ ! -d .sandbox-exec ]; }; then
        mv .sandbox-exec "sandbox-exec.displaced-$sbx_tag"
    fi
    # Another may remove what is empty at this moment.
    mkdir -p "$sbx_claim/new" || mkdir -p "$sbx_claim/new" || sbx_refuse "outbox"
    sbx_adopt
    sbx_list
    # One answer: a script of ours that says what to claim.
    sbx_answer claim
    sbx_in=$sbx_n
    if [ "$sbx_in" != 0 ]; then
        sbx_fit "$sbx_claim/new" -exec touch -t 197001020000 "$sbx_claim/time" {} +
        sbx_pack
        sbx_answer received
    fi
    sbx_end 0 -
    # Only now is it certain that the client's side knows how it ended.
    sbx_answer 'done'
    [ "$sbx_in" = 0 ] || mv "$sbx_claim/new" "$sbx_claim/sent"
    sbx_plain "$sbx_lock"
    echo free >"$sbx_lock"
    sbx_delete
    find "$sbx_claim" -depth -type d -exec rmdir {} +
    rmdir .sandbox-exec
}

# Takes the client's answer $1 and does what a script that comes with it says. Without a client,
# what was claimed is left for the next harvest.
sbx_answer() {
    read -r sbx_verb sbx_n
    if [ "$sbx_verb" = "$1" ]; then
        case $sbx_n in 0 | '') return ;; esac
        sbx_plain "$sbx_state/cmd-$sbx_tag"
        sbx_move "$sbx_n" >"$sbx_state/cmd-$sbx_tag" || sbx_refuse "space"
        read -r sbx_verb
        if [ "$sbx_verb" = "$sbx_nonce" ]; then
            # shellcheck source=/dev/null
            . "$sbx_state/cmd-$sbx_tag"
            rm -f "$sbx_state/cmd-$sbx_tag"
            return
        fi
    fi
    rm -f "$sbx_state/cmd-$sbx_tag"
    sbx_clear
    exit 0
}

# Takes over what harvests that are no more had claimed, and puts back what is too large by now.
sbx_adopt() {
    for sbx_d in .sandbox-exec/[0-9]*; do
        sbx_n=${sbx_d##*/}
        [ -d "$sbx_d" ] && [ ! -h "$sbx_d" ] && [ "$sbx_n" != "$sbx_tag" ] || continue
        sbx_alive "$sbx_n" && continue
        mv "$sbx_d" "$sbx_claim/old-$sbx_n" || continue
        for sbx_f in "$sbx_claim/old-$sbx_n"/old-*; do
            [ -d "$sbx_f" ] && mv "$sbx_f" "$sbx_claim/"
        done
    done
    for sbx_d in "$sbx_claim"/old-*; do
        [ -d "$sbx_d" ] || return
        # Only this harvest's own tells what is new, and nothing else would delete it.
        rm -f "$sbx_d/time"
        [ ! -e "$sbx_d/hidden" ] || [ -d "$sbx_d/sent" ] || rm -f "$sbx_d/hidden"
        [ ! -d "$sbx_d/new" ] || sbx_fit "$sbx_d/new"
    done
}

# Does $2... to the files below $1 that are small enough, and puts the others back to where they were,
# or out of the way where something newer is.
sbx_fit() {
    sbx_d=$1
    shift
    [ $# -gt 0 ] || set -- -prune
    # No parentheses: inside them, busybox forgets to do what "+" gathered.
    # shellcheck disable=SC2016  # for the other shell
    find "$sbx_d" -type f -size -"$((sbx_max + 1))"c "$@" -o -type f -exec "$sbx_sh" -c '
        here=$(pwd -P) from=$1 aside=$2
        shift 2
        for file; do
            to=${file#"$from/"} up=.
            case $to in */*) up=${to%/*} ;; esac
            if mkdir -p "$up" && case $(cd "$up" && pwd -P) in
                "$here" | "$here"/*) [ ! -e "$to" ] && [ ! -h "$to" ] ;;
                *) false ;;
                esac
            then
                touch "$file" && mv "$file" "$to"
            else
                mkdir -p "$aside/$up" && mv "$file" "$aside/$to"
            fi
        done' sh "$sbx_d" "$sbx_claim/old-0$sbx_tag/new" {} +
}

# Prints what may be claimed, of at most $sbx_max bytes, each path with a NUL behind it; then sizes, if
# they are wanted, each with its path.
sbx_list() {
    sbx_say "list"
    sbx_find -print0
    if [ "$sbx_bytes" = 1 ] && command -v stat; then
        sbx_say "sizes"
        sbx_find -exec stat -c '%s %n' {} +
    fi
    # Without tar, names are wanted in the answer.
    if command -v tar; then sbx_say "listed 1"; else sbx_say "listed 0"; fi
}

sbx_find() {
    find . -path ./.sandbox-exec -prune -o -type f -size -"$((sbx_max + 1))"c \
        ! -name '.sandbox-exec-put-*' "$@" >&4
    for sbx_d in "./$sbx_claim"/old-*; do
        [ -d "$sbx_d" ] || return
        [ ! -d "$sbx_d/new" ] || find "$sbx_d/new" -type f -size -"$((sbx_max + 1))"c "$@" >&4
        [ -d "$sbx_d/sent" ] || continue
        [ -e "$sbx_claim/time" ] || touch -t 197001020000 "$sbx_claim/time"
        find "$sbx_d/sent" -type f -newer "$sbx_claim/time" -size -"$((sbx_max + 1))"c "$@" >&4
    done
}

# The words of the client's scripts, whose quoting is the host's. sbx_pick BASE DIRECTORY NAME... claims;
# a function sbx_hand_all calls sbx_hand NUMBER PATH for every file; sbx_keep PATH is about one that
# did not arrive after all.
#
# Claims files of directory $2 below $1.
# shellcheck disable=SC2329  # by the script
sbx_pick() {
    sbx_dir=$PWD
    [ "$2" = . ] || mkdir -p "$sbx_claim/new/$2"
    (
        cd -P "$1/$2" || exit
        case $PWD in "$sbx_dir" | "$sbx_dir"/*) ;; *) exit ;; esac
        sbx_r=$sbx_dir/$sbx_claim/new/$2
        shift 2
        sbx_k=
        for sbx_f in "$@"; do
            [ -f "$sbx_f" ] && [ ! -h "$sbx_f" ] || sbx_k=1
        done
        # Only then, as it takes a while.
        [ ! "$sbx_k" ] || for sbx_f in "$@"; do
            shift
            [ -f "$sbx_f" ] && [ ! -h "$sbx_f" ] && set -- "$@" "$sbx_f"
        done
        [ $# = 0 ] || mv -f "$@" "$sbx_r/"
    )
}

# shellcheck disable=SC2329  # as above
sbx_keep() {
    [ -f "$sbx_claim/new/$1" ] || return
    case $1 in */*) sbx_v=${1%/*} ;; *) sbx_v=. ;; esac
    mkdir -p "$sbx_claim/old-0$sbx_tag/new/$sbx_v"
    mv "$sbx_claim/new/$1" "$sbx_claim/old-0$sbx_tag/new/$1"
}

# Hands over what is claimed: as a tar archive, or file by file where there is no tar.
sbx_pack() {
    if command -v tar; then
        sbx_say "tar"
        (cd "$sbx_claim/new" && tar -cf - . >&4)
        sbx_say "packed $?"
        return
    fi
    sbx_say "plain"
    # shellcheck disable=SC2329  # by the script
    sbx_hand() {
        [ -f "$sbx_claim/new/$2" ] && [ ! -h "$sbx_claim/new/$2" ] || return
        sbx_say "file $1"
        cat "$sbx_claim/new/$2" >&4
        sbx_say "done $?"
    }
    sbx_hand_all
    sbx_say "packed 0"
}
