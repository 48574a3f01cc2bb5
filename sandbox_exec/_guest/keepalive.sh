# PID 1 of a container that stays: makes the workspace, then stays and reaps. Called as:
# sh -c THIS NAME WORKSPACE STATE_DIR. An empty WORKSPACE is none of ours to make: what is mounted
# there may be somebody's project. Runs as any user.
# No trap and no --init, so that neither "kill 1" nor "kill -9 -1" inside ends it; output goes
# nowhere, since what reaches /proc/1/fd/1 would fill a log on the host (hazards F6, F10).
exec >/dev/null 2>&1
umask 0
if [ "$1" ]; then
    mkdir -p "$1/inputs" "$1/outputs"
    chmod 0777 "$1" "$1/inputs" "$1/outputs"
fi
# At every start but the first, the engine gives the mount the mode of the directory below it.
chmod 1777 "$2"
read -r now rest </proc/uptime
echo "$now" 1<>"$2/last"
# Tells one start of the container from the next, for callers who did not see it (hazard S16).
echo "$now" 1<>"$2/boot"
umask 022
while :; do
    sleep 1000 &
    # A retiring guest writes "retired" and ends the sleep: so the check and the stop are one step,
    # in which nobody can be frozen (hazard S11).
    # A fifo that was put there does not hold it up.
    echo $! 1<>"$2/sleep"
    wait $!
    code=$?
    [ -e "$2/retired" ] && exit 0
    case $code in
    # Somebody removed sleep. Standard input is held open by the engine; should it not be, it is
    # better to stop than to spin, as a stopped sandbox is woken by the next call.
    126 | 127) read -r _ || exit 0 ;;
    esac
done
