# Says what this sandbox is as seen from inside, one fact a line. Runs as a user's command does, as
# the text of `sh -c`, and needs nothing but that shell.
while read -r key value rest; do
    case $key in
    CapEff: | CapBnd: | NoNewPrivs:) echo "${key%:} $value" ;;
    esac
done </proc/self/status
while read -r max resident set value rest; do
    case $max$resident$set in Maxresidentset) echo "tag $value" ;; esac
done </proc/self/limits
while read -r key value rest; do
    case $key in SwapTotal:) echo "swap-on-host $value" ;; esac
done </proc/meminfo
while read -r name rest; do
    case $name in *:*) echo "interface ${name%%:*}" ;; esac
done </proc/net/dev
routes=
while read -r name destination rest; do
    case $name in Iface | '') ;; *) routes=1 && echo "route $name $destination" ;; esac
done </proc/net/route
while read -r destination _ _ _ _ _ _ _ _ name; do
    # Every host has routes to itself.
    case $name in lo | '') ;; *) routes=1 && echo "route $name $destination" ;; esac
done </proc/net/ipv6_route
# An address that documents use and no host has: without a route the answer is there at once, and
# where there is one, that says it all.
if [ -z "$routes" ]; then
    if [ "$BASH_VERSION" ]; then
        # shellcheck disable=SC3025  # bash it is
        (exec 7<>/dev/tcp/192.0.2.1/9) && echo "connect made" || echo "connect refused"
    elif command -v nc >/dev/null; then
        nc -w 2 192.0.2.1 9 </dev/null && echo "connect made" || echo "connect refused"
    fi
fi
for name in memory.max memory.swap.max pids.max cpu.max \
    memory/memory.limit_in_bytes memory/memory.memsw.limit_in_bytes pids/pids.max \
    cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us; do
    [ -r "/sys/fs/cgroup/$name" ] && read -r value <"/sys/fs/cgroup/$name" && echo "cgroup $name $value"
done
while read -r _ place kind options rest; do
    case $place in "$SANDBOX_EXEC_STATE") echo "state $kind $options" ;; esac
done </proc/self/mounts
echo "end"
