# What keeps an outbox right between harvests: their turns, and what may be deleted when.

# The lock is the file harvest-N of the highest N, and it is held while it names a guest that lives.
# Who finds that it is not makes the next one. After ten minutes its holder's client is taken for
# one that will never say another word.
sbx_lock() {
    sbx_i=0
    while :; do
        sbx_now
        sbx_top
        sbx_e=$sbx_k
        sbx_words "$sbx_state/harvest-$sbx_e"
        sbx_q=$sbx_v sbx_r=$sbx_l
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
        # What has more digits is a command's, and there would be no next one.
        case $sbx_v in '' | *[!0-9]* | ??????????*) continue ;; esac
        [ "$sbx_v" -gt "$sbx_k" ] && sbx_k=$sbx_v
    done
}

# Whether the lock of guest $1, taken in second $2, is nobody's any more.
sbx_outlived() {
    sbx_alive "$1" || return 0
    case $2 in '' | *[!0-9]* | ???????????*) return 1 ;; esac
    [ "$((sbx_s1 - $2))" -ge 600 ] && kill -9 "$sbx_v"
}

# Deletes what has arrived, unless it was written to since, or may yet be. What somebody holds open
# stays, as does everything for ten minutes while a process that was there hides what it holds,
# which one of another user does: to see them, root would need CAP_SYS_PTRACE.
sbx_delete() {
    set -- "$sbx_claim"/sent "$sbx_claim"/old-*/sent
    [ -d "$1" ] || shift
    [ -d "$1" ] || return
    sbx_plain "$sbx_state/fds-$sbx_tag"
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
        sbx_dir=$PWD/.sandbox-exec/
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
        sbx_note "$1/hidden" "$sbx_s1 $sbx_found"
        return 0
    fi
    sbx_words "$1/hidden"
    sbx_l="$sbx_l $sbx_k"
    case $sbx_v in '' | *[!0-9]* | ???????????*) sbx_v=0 ;; esac
    if [ "$((sbx_s1 - sbx_v))" -lt 600 ]; then
        for sbx_p in $sbx_l; do
            case $sbx_found in *" $sbx_p "*) return 0 ;; esac
        done
    fi
    rm -f "$1/hidden"
    return 1
}
