# The verbs "put" and "read": one file in, whole or not at all, and one out, with a verdict.

# Takes the path that a request is about, $1 lines of it, and admits the request.
sbx_path() {
    sbx_take "$1"
    sbx_file=$sbx_v
    sbx_take 1
    [ "$sbx_v" = "$sbx_nonce" ] || exit 0
    sbx_admit
}

# The new content gets a name of its own beside the old, which stays until all of it has arrived.
sbx_put() {
    sbx_path "$1"
    for sbx_v in dd mv mkdir; do
        command -v "$sbx_v" || sbx_refuse "tools"
    done
    [ -d "$sbx_file" ] && sbx_refuse "directory"
    sbx_dir=${sbx_file%/*}/
    [ -d "$sbx_dir" ] || mkdir -p "$sbx_dir" || sbx_refuse "parent"
    for sbx_f in "$sbx_dir".sandbox-exec-put-*; do
        # What puts that were killed have left.
        case ${sbx_f##*-} in '' | *[!0-9]*) continue ;; esac
        sbx_alive "${sbx_f##*-}" || rm -f "$sbx_f"
    done
    sbx_in=$sbx_dir.sandbox-exec-put-$sbx_tag
    { echo >"$sbx_in"; } || sbx_refuse "parent"
    sbx_receive >"$sbx_in"
    case $? in
    0) ;;
    1)
        rm -f "$sbx_in"
        sbx_refuse "disk"
        ;;
    *)
        # The client is gone.
        rm -f "$sbx_in"
        sbx_clear
        trap - EXIT
        exit 0
        ;;
    esac
    [ -f "$sbx_file" ] && [ ! -h "$sbx_file" ] && sbx_inherit
    if [ -d "$sbx_file" ] || ! mv -f "$sbx_in" "$sbx_file"; then
        rm -f "$sbx_in"
        sbx_refuse "rename"
    fi
    trap - EXIT
    sbx_end 0 -
}

# What is replaced hands on its mode and its owner, but no bit that lends somebody's rights.
sbx_inherit() {
    # shellcheck disable=SC2046  # three numbers
    set -- $(stat -c '%a %u %g' "$sbx_file")
    case $1 in '') return ;; ????) sbx_v=${1#?} ;; *) sbx_v=$1 ;; esac
    [ "$2 $3" = "0 0" ] || chown "$2:$3" "$sbx_in"
    [ "$sbx_v" = 644 ] || chmod "$sbx_v" "$sbx_in"
}

sbx_receive() {
    while read -r sbx_n; do
        case $sbx_n in
        end) return 0 ;;
        '' | *[!0-9]*) return 2 ;;
        esac
        sbx_move "$sbx_n" || return 1
    done
    return 2
}

sbx_read() {
    sbx_max=$1
    sbx_path "$2"
    for sbx_v in dd ls; do
        command -v "$sbx_v" || sbx_refuse "tools"
    done
    sbx_in=/dev/null
    sbx_serve sbx_read_file
}

# Says what there is, then its bytes if it is a file of at most $sbx_max of them. The size is the
# file system's word, which for /proc is always 0, so one byte more than wanted is read.
# shellcheck disable=SC2329  # a job of sbx_serve
sbx_read_file() {
    if [ -d "$sbx_file" ]; then
        sbx_kind "directory"
    elif [ ! -e "$sbx_file" ]; then
        sbx_kind "missing"
    elif [ ! -f "$sbx_file" ]; then
        sbx_kind "special"
    elif [ ! -r "$sbx_file" ]; then
        sbx_kind "denied"
    else
        # The fifth word is the size everywhere, unlike what stat or find print.
        set -f
        # shellcheck disable=SC2046,SC2012  # split into words, and only that one is looked at
        set -- $(ls -lndL "$sbx_file" 2>/dev/null)
        case $5 in '' | *[!0-9]*) return 1 ;; esac
        sbx_kind "file" "$5"
        [ "$5" -gt "$sbx_max" ] && return
        dd if="$sbx_file" bs=65536 count="$((sbx_max / 65536 + 1))" iflag=fullblock 2>/dev/null
    fi
}

# shellcheck disable=SC2329  # as above
sbx_kind() { printf '\036%s kind %s %s\n' "$sbx_nonce" "$1" "${2:-0}"; }
