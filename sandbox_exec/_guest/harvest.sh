# The verb "harvest": what is in the outbox is claimed, read, and deleted once it has arrived.
#
# Claimed by a rename into a directory inside the outbox, as elsewhere may be another file system.
# What a harvest that died had claimed is adopted by the next, so nothing is lost. A claimed file
# gets an old time; whoever still writes to it makes it new again, and then it stays for the next.

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
    for sbx_v in find mv mkdir touch; do
        command -v "$sbx_v" || sbx_refuse "tools"
    done
    [ -h .sandbox-exec ] && sbx_refuse "outbox"
    mkdir -p "$sbx_claim/new" || sbx_refuse "outbox"
    sbx_adopt
    sbx_list
    # One answer: a script of ours that says what to claim, or the end of the client.
    read -r sbx_verb sbx_n || sbx_abandon
    [ "$sbx_verb" = claim ] || sbx_abandon
    if [ "$sbx_n" -gt 0 ]; then
        sbx_move "$sbx_n" >"$sbx_state/cmd-$sbx_tag" || sbx_refuse "space"
        sbx_take 1
        [ "$sbx_v" = "$sbx_nonce" ] || sbx_abandon
        # shellcheck source=/dev/null
        . "$sbx_state/cmd-$sbx_tag"
        rm -f "$sbx_state/cmd-$sbx_tag"
        find "$sbx_claim/new" -type f -exec touch -t 200001010000 {} +
        sbx_pack
        read -r sbx_verb sbx_n || sbx_abandon
        [ "$sbx_verb" = received ] && sbx_delete
    fi
    find .sandbox-exec -depth -type d -exec rmdir {} + 2>/dev/null
    sbx_end 0 -
}

# The client is gone: what was claimed is left for the next harvest.
sbx_abandon() {
    sbx_clear
    exit 0
}

# Takes over what harvests that are no more had claimed.
sbx_adopt() {
    for sbx_d in .sandbox-exec/[0-9]*; do
        sbx_n=${sbx_d##*/}
        [ -d "$sbx_d" ] && [ "$sbx_n" != "$sbx_tag" ] || continue
        sbx_v=''
        read -r sbx_v sbx_l <"$sbx_state/run-$sbx_n"
        case $sbx_v in '' | *[!0-9]*) ;; *) [ -d "/proc/$sbx_v" ] && continue ;; esac
        mv "$sbx_d" "$sbx_claim/old-$sbx_n"
    done
}

# Prints the paths of the files of at most $sbx_max bytes, each with a NUL behind it; then, if they
# are wanted, their sizes, each with its path, a line each.
sbx_list() {
    sbx_in=$sbx_state/in-$sbx_tag
    find . -type f -size -"$((sbx_max + 1))"c ! -path './.sandbox-exec/*' -print0 >"$sbx_in"
    find "./$sbx_claim" -type f -size -"$((sbx_max + 1))"c -print0 >>"$sbx_in"
    sbx_say "list"
    cat "$sbx_in" >&4
    if [ "$sbx_bytes" = 1 ] && command -v xargs && command -v stat; then
        sbx_say "sizes"
        xargs -0 stat -c '%s %n' <"$sbx_in" >&4
    fi
    rm -f "$sbx_in"
    sbx_say "listed 0"
}

# The script's words, whose quoting is the host's: sbx_pick BASE DIRECTORY NAME... claims, and a
# function sbx_hand_all calls sbx_hand NUMBER PATH for every file that was claimed.
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
        mv -f "$@" "$sbx_l/"
    )
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
        [ -f "$sbx_claim/new/$2" ] || return
        sbx_say "file $1"
        cat "$sbx_claim/new/$2" >&4
    }
    sbx_hand_all
    sbx_say "packed 0"
}

# Deletes what nobody wrote to since it was claimed. What somebody holds open is made new, so that it
# stays and is delivered again: the last writes may be still to come.
sbx_delete() {
    sbx_dir=$(pwd -P)/$sbx_claim/new/
    # shellcheck disable=SC2012  # the text behind the arrow is what is wanted
    ls -l /proc/[0-9]*/fd 2>/dev/null | while IFS= read -r sbx_l; do
        case $sbx_l in *" -> $sbx_dir"*) ;; *) continue ;; esac
        sbx_v=$sbx_dir${sbx_l#*" -> $sbx_dir"}
        # A name that does not fit on a line cannot be told: then nothing is deleted this time.
        if [ -f "$sbx_v" ]; then touch -c "$sbx_v"; else echo >"$sbx_state/hold-$sbx_tag"; fi
    done
    if [ -e "$sbx_state/hold-$sbx_tag" ]; then
        rm -f "$sbx_state/hold-$sbx_tag"
        return
    fi
    touch -t 200001010000 "$sbx_claim/reference"
    find "$sbx_claim/new" -type f ! -newer "$sbx_claim/reference" -exec rm -f {} +
    rm -f "$sbx_claim/reference"
}
