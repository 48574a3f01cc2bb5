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
    cd "$sbx_file" && [ "$(pwd -P)" = "$sbx_file" ] || sbx_refuse "outbox"
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

# The lock is the file harvest-N of the highest N, and it is held while it names a guest that lives.
# Who finds that it is not makes the next one. After ten minutes its holder's client is taken for
# one that will never say another word.
sbx_lock() {
    sbx_i=0
    while :; do
        sbx_now
        sbx_top
        sbx_e=$sbx_k sbx_q='' sbx_r=''
        [ "$sbx_e" = 0 ] || read -r sbx_q sbx_r <"$sbx_state/harvest-$sbx_e"
        # Empty is one that is being written.
        if [ "$sbx_e" = 0 ] || [ "$sbx_q" = free ] || { [ ! "$sbx_q" ] && [ "$sbx_i" = 20 ]; } ||
            { [ "$sbx_q" ] && sbx_outlived "$sbx_q" "$sbx_r"; }; then
            sbx_e=$((sbx_e + 1))
            sbx_lock=$sbx_state/harvest-$sbx_e
            set -C
            if echo "$sbx_tag $sbx_s1" >"$sbx_lock"; then
                set +C
                sbx_top
                [ "$sbx_k" = "$sbx_e" ] && break
                rm -f "$sbx_lock"
            fi
            set +C
        fi
        [ "$sbx_i" -lt 600 ] || sbx_refuse "busy"
        sleep 0.1 || sleep 1
        sbx_i=$((sbx_i + 1))
    done
    for sbx_f in "$sbx_state"/harvest-*; do
        [ "$sbx_f" = "$sbx_lock" ] || rm -f "$sbx_f"
    done
}

# Sets sbx_k to the highest number of a lock, 0 if there is none.
sbx_top() {
    sbx_k=0
    for sbx_f in "$sbx_state"/harvest-*; do
        sbx_v=${sbx_f##*-}
        case $sbx_v in '' | *[!0-9]*) continue ;; esac
        [ "$sbx_v" -gt "$sbx_k" ] && sbx_k=$sbx_v
    done
}

# Whether the lock of guest $1, taken in second $2, is nobody's any more.
sbx_outlived() {
    sbx_alive "$1" || return 0
    case $2 in '' | *[!0-9]* | ???????????*) return 1 ;; esac
    [ "$((sbx_s1 - $2))" -ge 600 ] && kill -9 "$sbx_v"
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
    sbx_dir=$(pwd -P)
    mkdir -p "$sbx_claim/new/$2"
    (
        cd "$1/$2" || exit
        case $(pwd -P) in "$sbx_dir" | "$sbx_dir"/*) ;; *) exit ;; esac
        sbx_l=$sbx_dir/$sbx_claim/new/$2
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
        [ $# = 0 ] || mv -f "$@" "$sbx_l/"
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

# Deletes what has arrived, unless it was written to since, or may yet be. What somebody holds open
# stays, as does everything for ten minutes while a process that was there hides what it holds,
# which one of another user does: to see them, root would need CAP_SYS_PTRACE.
sbx_delete() {
    set -- "$sbx_claim"/sent "$sbx_claim"/old-*/sent
    [ -d "$1" ] || shift
    [ -d "$1" ] || return
    LC_ALL=C ls -l /proc/[0-9]*/fd >"$sbx_state/fds-$sbx_tag" 2>&1
    sbx_now
    sbx_hidden "$sbx_state/fds-$sbx_tag"
    sbx_n=$#
    while [ "$sbx_n" -gt 0 ]; do
        sbx_d=$1 sbx_n=$((sbx_n - 1))
        shift
        sbx_kept "${sbx_d%/sent}" || set -- "$@" "$sbx_d"
    done
    if [ $# -gt 0 ]; then
        set -- "$@" -type f ! -newer "$sbx_claim/time"
        sbx_dir=$(pwd -P)/.sandbox-exec/
        while IFS= read -r sbx_l; do
            case $sbx_l in *" -> $sbx_dir"*) ;; *) continue ;; esac
            sbx_v=./.sandbox-exec/${sbx_l#*" -> $sbx_dir"}
            # A pattern that matches at least this name: some characters are special, busybox shows
            # others as "?", and a newline ends it early.
            while :; do
                case $sbx_v in
                *[\[\\*]*) sbx_v=${sbx_v%%[\[\\*]*}\?${sbx_v#*[\[\\*]} ;;
                *) break ;;
                esac
            done
            set -- "$@" ! -path "${sbx_v#./}*"
        done <"$sbx_state/fds-$sbx_tag"
        LC_ALL=C find "$@" -exec rm -f {} +
    fi
    rm -f "$sbx_state/fds-$sbx_tag" "$sbx_claim/time"
}

# Sets sbx_found to the processes that hide what they hold open: a line about a descriptor has no
# arrow, or there are no lines.
sbx_hidden() {
    sbx_found=' ' sbx_p=''
    while IFS= read -r sbx_l; do
        case $sbx_l in
        /proc/*/fd:) sbx_p=${sbx_l#/proc/} sbx_p=${sbx_p%/fd:} ;;
        *'Permission denied'*) sbx_v=${sbx_l#*/proc/} && sbx_p=${sbx_v%%/*} ;;
        l*' -> '*) continue ;;
        l*) ;;
        *) continue ;;
        esac
        case $sbx_l in /proc/*/fd:) continue ;; esac
        case $sbx_found in *" $sbx_p "*) ;; *) sbx_found="$sbx_found$sbx_p " ;; esac
    done <"$1"
}

# Whether what arrived and is kept in $1 has to stay for now.
sbx_kept() {
    if [ ! -e "$1/hidden" ]; then
        [ "$sbx_found" = ' ' ] && return 1
        echo "$sbx_s1 $sbx_found" >"$1/hidden"
        return 0
    fi
    sbx_v='' sbx_l=''
    read -r sbx_v sbx_l <"$1/hidden"
    case $sbx_v in '' | *[!0-9]* | ???????????*) sbx_v=0 ;; esac
    if [ "$((sbx_s1 - sbx_v))" -lt 600 ]; then
        for sbx_p in $sbx_l; do
            case $sbx_found in *" $sbx_p "*) return 0 ;; esac
        done
    fi
    rm -f "$1/hidden"
    return 1
}
