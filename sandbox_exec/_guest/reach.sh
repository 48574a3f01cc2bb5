# Reaches for one of the sandbox's limits, or its workspace, and says how far it got. Runs as a user's command does, as
# the text of `sh -c`, and needs nothing but that shell.
#   SANDBOX_EXEC_LIMIT   memory, pids, cpus, time or workspace
#   SANDBOX_EXEC_FAR     bytes, processes, or hundredths of a second, beyond which it stops

# Each level waits for the next, so that all of them are there at once and none does anything.
deeper() {
    echo "reached $1"
    [ "$1" -ge "$SANDBOX_EXEC_FAR" ] && return
    # What follows keeps the shell from becoming its own last child.
    (deeper $(($1 + 1)); :)
    :
}

now() {
    read -r up _ </proc/uptime
    now=$((${up%.*} * 100 + 1${up#*.} - 100))
}

case $SANDBOX_EXEC_LIMIT in
memory)
    text=0123456789abcdef size=16
    while [ "$size" -lt "$SANDBOX_EXEC_FAR" ]; do
        text=$text$text
        size=$((size * 2))
    done
    echo "reached $size"
    ;;
pids) deeper 1 ;;
cpus)
    now
    begun=$now
    while [ $((now - begun)) -lt "$SANDBOX_EXEC_FAR" ]; do now; done
    echo "reached $((now - begun))"
    times
    ;;
time)
    trap '' TERM HUP INT
    echo "reached 0"
    (while :; do :; done) &
    while :; do :; done
    ;;
workspace) echo "reached 0" >seen ;;
esac
