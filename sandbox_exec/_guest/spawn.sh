# Runs one spawned process: takes its tag, leaves its mark, and ends as it ends. Called as:
# sh -c 'eval "${SANDBOX_EXEC_SPAWN:?...}"' NAME STATE_DIR MARK NONCE CWD START PIECES COMMAND ARGUMENT...
#
# MARK is TAG, or NUMBER-TAG where processes share a tag. The variables are shell text in so many
# PIECES, SANDBOX_EXEC_ENV0 and on, so that none of them steers the engine's program or this shell.
# START is the start of the container in which files were placed for it, or "-"; in any other it is
# refused, as a stop empties what they were placed in.
# With a NONCE there is a client that listens. Frames are as a guest's:
#   ready PROTOCOL BOOT   on both streams; then a line with the nonce is read, and without it
#                         nothing is run
#   started               on standard output, just before the command's own
#   refused REASON        on standard output: nothing was run
#   end STATUS FLAGS      on both streams; "s" when processes live on, whose output then follows
# Without one, NONCE is "-", and nothing is printed but why a command could not be run.
#
# The command runs in a forked child, as gVisor has a tag set by an exec'd shell itself spread to
# PID 1; and in the foreground, since a background child of a shell ignores SIGINT for good.
unset SANDBOX_EXEC_SPAWN sbx_state sbx_mark sbx_tag sbx_nonce sbx_cwd sbx_env sbx_i sbx_v sbx_l sbx_k \
    sbx_t sbx_h sbx_f sbx_d sbx_q sbx_s1 sbx_c1 sbx_before sbx_found sbx_code sbx_why sbx_p sbx_start
sbx_state=$1 sbx_mark=$1/run-$2 sbx_tag=${2##*-} sbx_nonce=$3 sbx_cwd=$4 sbx_start=$5
sbx_env='' sbx_i=0
while [ "$sbx_i" -lt "$6" ]; do
    eval "sbx_env=\$sbx_env\$SANDBOX_EXEC_ENV$sbx_i; unset SANDBOX_EXEC_ENV$sbx_i"
    sbx_i=$((sbx_i + 1))
done
shift 6
IFS=' '
exec 3<&0 4>&1 5>&2 </dev/null >/dev/null 2>&1

sbx_say() { [ "$sbx_nonce" = - ] || printf '\036%s %s\n' "$sbx_nonce" "$1" >&4; }

# Reason $1 for a program, $2 for people.
sbx_refuse() {
    trap - EXIT
    sbx_say "refused $1"
    [ "$sbx_nonce" != - ] || printf 'sandbox-exec: %s\n' "$2" >&5
    rm -f "$sbx_mark"
    exit 126
}

# The mark first, then a look for a retirement, which looks for marks after it has begun (hazard S11).
trap 'sbx_cannot_fork' EXIT
sbx_note "$sbx_mark" "$$ busy" || sbx_refuse state "the sandbox has no room for a mark"
sbx_i=0
while sbx_is_retiring && [ "$sbx_nonce" = - ] && [ "$sbx_i" -lt 5 ]; do
    sbx_i=$((sbx_i + 1))
    sleep 1
done
sbx_supersede || sbx_refuse retiring "the sandbox is being stopped"
[ ! -e "$sbx_state/retired" ] || sbx_refuse retiring "the sandbox is being stopped"

if [ "$sbx_nonce" != - ]; then
    sbx_ready
    sbx_l=''
    read -r sbx_l <&3
    if [ "$sbx_l" != "$sbx_nonce" ]; then
        trap - EXIT
        rm -f "$sbx_mark"
        exit 0
    fi
fi
if [ "$sbx_start" != - ]; then
    sbx_words "$sbx_state/boot"
    # A command may have removed what tells one start from the next, and then nobody can.
    case $sbx_v in
    '' | *[!0-9.]* | "$sbx_start") ;;
    *) sbx_refuse moved "the container was restarted, and the files for this are lost: wrap it anew" ;;
    esac
fi
[ -z "$sbx_cwd" ] || cd "$sbx_cwd" || sbx_refuse cwd "the working directory cannot be entered: $sbx_cwd"

sbx_look
# What ends the command's neighbours by name or by "kill -TERM -1" must not take this one along.
trap : TERM HUP INT
(
    # shellcheck disable=SC3045  # every shell in use has it, and one that has not refuses
    ulimit -m "$sbx_tag" 2>/dev/null || { sbx_note "$sbx_state/untagged-$sbx_tag" '' && exit 126; }
    # Whoever reaps removes the mark before the flag, so one of the two is seen.
    [ ! -e "$sbx_state/gone-$sbx_tag" ] && [ -e "$sbx_mark" ] || exit 137
    read -r sbx_p sbx_l </proc/self/stat
    sbx_note "$sbx_mark" "$$ busy $sbx_p"
    [ "$sbx_nonce" = - ] || printf '\036%s started\n' "$sbx_nonce"
    # The caller's variables may have any name, so none of ours is read after them.
    eval "$sbx_env"
    exec "$@"
) <&3 >&4 2>&5 3<&- 4>&- 5>&-
sbx_code=$?
trap - EXIT TERM HUP INT
exec 3<&-
if [ "$sbx_code" = 126 ] && [ -e "$sbx_state/untagged-$sbx_tag" ]; then
    sbx_refuse tag "processes cannot be tagged in this sandbox"
fi
sbx_now
sbx_note "$sbx_state/last" "$sbx_v"
sbx_survivor
if [ "$sbx_nonce" = - ]; then
    # What lives on keeps the container in use, and its tag from being nobody's.
    if [ "$sbx_found" ]; then
        sbx_note "$sbx_mark" "$sbx_found busy"
    else
        rm -f "$sbx_mark"
    fi
    exit "$sbx_code"
fi
printf '\036%s end %s %s\n' "$sbx_nonce" "$sbx_code" "-${sbx_found:+s}" >&5
sbx_say "end $sbx_code -${sbx_found:+s}"
# If this left, the engine would cut off the output of what lives on (hazard F20).
sbx_i=1 sbx_before=
while [ "$sbx_found" ]; do
    sleep "$sbx_i" || break
    [ "$sbx_i" -ge 4 ] || sbx_i=$((sbx_i + 1))
    sbx_survivor
done
rm -f "$sbx_mark"
exit "$sbx_code"
