# The command's limit and its client's presence: finding a tree by its tag, and ending it.

# Sets sbx_known to the tags that belong to somebody. A command can make a mark, too, so those of
# nobody are not believed.
sbx_tags() {
    sbx_known=' '
    for sbx_n in "$sbx_state"/run-*; do
        case ${sbx_n##*-} in '' | *[!0-9]*) continue ;; esac
        sbx_words "$sbx_n"
        sbx_q=$sbx_k
        sbx_owns "$sbx_v" || sbx_owns "$sbx_q" || continue
        sbx_known="$sbx_known$((${sbx_n##*-} * 1024)) "
    done
}

# Whether process $1 may be who the mark $sbx_n is of: a guest, the wrapper that was told of this mark,
# or what one of them left behind, with the whole tag. Of a guest the mark's tag cannot be read, but
# this one knows its own; and neither is below a limit, as whatever a command starts is.
sbx_owns() {
    case $1 in '' | *[!0-9]*) return 1 ;; esac
    sbx_rss "$1"
    [ "$sbx_t" = "$sbx_h" ] || return 1
    [ "$sbx_t" != "$((${sbx_n##*-} * 1024))" ] || return 0
    case $sbx_t in '' | *[0-9]*) return 1 ;; esac
    sbx_l=''
    IFS= read -r sbx_l <"/proc/$1/cmdline"
    case $sbx_l in
    *SANDBOX_EXEC_SPAWN*"${sbx_n##*/run-}"*) ;;
    *SANDBOX_EXEC_GUEST*) [ "$1" != $$ ] || [ "$sbx_n" = "$sbx_mark" ] ;;
    *) return 1 ;;
    esac
}

# Kills every process that carries the tag $1, until a pass finds none; also one whose limit
# belongs to nobody: only a command that tries to hide lowers its own.
sbx_sweep() {
    sbx_tags
    sbx_e=$(($1 * 1024))
    sbx_now
    sbx_s0=$sbx_s1 sbx_c0=$sbx_c1
    while :; do
        # A command can stop its own guest, which would then neither reap it nor say how it ended.
        kill -CONT $$
        sbx_found=
        for sbx_d in /proc/[0-9]*; do
            sbx_p=${sbx_d#/proc/}
            sbx_rss "$sbx_p"
            # Whose it is, the hard one says, which nobody can raise; without one, what there is.
            case $sbx_h in '' | *[!0-9]*) sbx_h=$sbx_t ;; esac
            case $sbx_h in '' | *[!0-9]*) continue ;; esac
            if [ "$sbx_t" != "$sbx_e" ] && [ "$sbx_h" != "$sbx_e" ]; then
                case $sbx_known in *" $sbx_h "*) continue ;; esac
                # It may belong to a call that began after the list was made.
                sbx_r=$sbx_h
                sbx_tags
                case $sbx_known in *" $sbx_r "*) continue ;; esac
            fi
            kill -9 "$sbx_p" && sbx_found=1
        done
        [ "$sbx_found" ] || break
        sbx_now
        [ "$(((sbx_s1 - sbx_s0) * 100 + sbx_c1 - sbx_c0))" -lt 150 ] || return 1
    done
    # Now nobody is left to stop it once more.
    kill -CONT $$
    return 0
}

# Reads standard input while a command runs. The flag file is written before the sweep, and the
# command looks for it after it has taken its tag: one of the two sees the other.
sbx_watch_client() {
    trap '' TERM HUP
    exec 3<&- 4>&- 5>&-
    while read -r sbx_verb; do
        case $sbx_verb in
        done) exit 0 ;;
        kill) break ;;
        esac
    done
    if ! sbx_note "$sbx_state/gone-$sbx_tag" ''; then
        sbx_sweep "$sbx_tag"
        sleep 1
    fi
    sbx_sweep "$sbx_tag"
    # What follows "kill" is still for this process; it ends when the client does.
    while read -r sbx_verb; do
        [ "$sbx_verb" = 'done' ] && exit 0
    done
    exit 0
}

# Exits with 9 when it has ended the command, 8 when something outlived that, 1 when it cannot tell
# the time: the host's own timer then asks for the kill.
sbx_watch_limit() {
    sbx_p=$!
    trap '[ "$!" = "$sbx_p" ] || kill -9 $!; exit 0' TERM
    exec 3<&- 4>&- 5>&-
    sbx_now
    sbx_s0=$sbx_s1 sbx_c0=$sbx_c1
    sleep "$sbx_limit" &
    wait $!
    sbx_code=$?
    if [ "$sbx_code" != 0 ]; then
        # POSIX promises whole seconds only.
        sleep "$((${sbx_limit%.*} + 1))" &
        wait $!
        sbx_code=$?
    fi
    trap '' TERM
    sbx_now
    # The command may have put a sleep of its own in place, so the clock decides.
    sbx_v=$(((sbx_s1 - sbx_s0 - ${sbx_limit%.*}) * 100 + sbx_c1 - sbx_c0 - 1${sbx_limit#*.} + 100))
    [ "$sbx_code" = 0 ] && [ "$sbx_v" -ge -5 ] || exit 1
    sbx_sweep "$sbx_tag" && exit 9
    exit 8
}

# Sends signal $2 to the guest of the tag $1 and to its monitor.
sbx_tell_guest() {
    sbx_words "$sbx_state/run-$1"
    sbx_p=$sbx_k
    case $sbx_l$sbx_v$sbx_p in busy*[!0-9]*) ;; busy?*) kill -"$2" "$sbx_v" ${sbx_p:+"$sbx_p"} ;; esac
}

# Ends the command with the tag $1, and its guest, which may wait for ever for a client that is gone:
# an engine that was killed leaves its standard input open (live-restore).
sbx_reap() {
    sbx_note "$sbx_state/gone-$1" ''
    # The dead children of a guest that was stopped stay in /proc, tag and all.
    sbx_tell_guest "$1" CONT
    sbx_sweep "$1"
    sbx_code=$?
    sbx_tell_guest "$1" 9
    # The marks before the flag: a spawned process that has only just taken its tag looks for them in
    # the opposite order.
    rm -f "$sbx_state/run-$1" "$sbx_state"/run-*-"$1"
    rm -f "$sbx_state/gone-$1"
    sbx_say "reaped $sbx_code"
}

# Sends signal $2 to the process that was spawned with tag $1: "signalled 0", or another status if it
# is not there any more. Its tag proves that the number in its mark is still its own.
sbx_signal() {
    sbx_code=1
    sbx_words "$sbx_state/run-$1"
    sbx_p=$sbx_k
    case $sbx_p in
    '' | *[!0-9]*) ;;
    *)
        sbx_carries "$sbx_p" "$1" && kill -"$2" "$sbx_p" && sbx_code=0
        ;;
    esac
    sbx_say "signalled $sbx_code"
}
