# The verb "run": a user's command, from its request to its end frames.

# Sets sbx_oom to the kernel's count of processes killed here for want of memory.
sbx_ooms() {
    sbx_oom=0
    for sbx_f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
        [ -r "$sbx_f" ] || continue
        while read -r sbx_k sbx_v; do
            [ "$sbx_k" = oom_kill ] && sbx_oom=$sbx_v
        done <"$sbx_f"
        return
    done
}

# Stays while background processes of the command live. If it left, the engine would hold up the
# next call on this container and cut off their output (hazard F20).
sbx_linger() {
    [ $$ = 1 ] && exit 0
    sbx_p=$sbx_found sbx_before=
    sbx_n=0
    for sbx_f in "$sbx_state"/run-*; do
        sbx_words "$sbx_f"
        [ "$sbx_l" = linger ] && [ -d "/proc/$sbx_v" ] && sbx_n=$((sbx_n + 1))
    done
    # Who leaves earlier hands its mark on, or the tag of what lives on would be nobody's.
    [ "$sbx_n" -lt 16 ] || { sbx_note "$sbx_mark" "$sbx_p left" && exit 0; }
    # Never empty, as a sweep would not believe that.
    sbx_note "$sbx_mark" "$$ linger"
    sbx_n=1
    while :; do
        sleep "$sbx_n" || { sbx_note "$sbx_mark" "$sbx_p left" && exit 0; }
        sbx_survivor
        [ "$sbx_found" ] || break
        [ "$sbx_n" -ge 16 ] || sbx_n=$((sbx_n * 2))
    done
    sbx_clear
    exit 0
}

# Makes directory $1 if it is not there, moving anything else of that name out of the way.
sbx_directory() {
    [ -d "$1" ] && return
    [ -e "$1" ] || [ -h "$1" ] && mv "$1" "$1.displaced-$sbx_tag"
    mkdir -p "$1" && chmod 0777 "$1"
}

# Whether there are processes left for the guest's own and for a command of a few. Beyond, the
# command could not start one, and would say so as if that were its own fault (hazard S15).
sbx_room() {
    for sbx_f in /sys/fs/cgroup /sys/fs/cgroup/pids; do
        [ -r "$sbx_f/pids.max" ] || continue
        sbx_v='' sbx_l=''
        read -r sbx_v <"$sbx_f/pids.max"
        read -r sbx_l <"$sbx_f/pids.current"
        case $sbx_v$sbx_l in '' | *[!0-9]*) continue ;; esac
        [ "$((sbx_v - sbx_l))" -ge 8 ] || return 1
    done
}

sbx_run() {
    sbx_take "$1"
    sbx_cwd=$sbx_v
    sbx_lines=$3 sbx_bytes=$4 sbx_stdin=$5
    sbx_cmd='' sbx_env=''
    if [ "$sbx_bytes" -le 4096 ]; then
        sbx_take "$2"
        sbx_env=$sbx_v
        sbx_take "$sbx_lines"
        sbx_cmd=$sbx_v
    elif sbx_plain "$sbx_state/cmd-$sbx_tag" && command -v dd; then
        sbx_move "$sbx_bytes" >"$sbx_state/cmd-$sbx_tag" || sbx_refuse "space"
    else
        sbx_i=0
        while [ "$sbx_i" -lt "$(($2 + sbx_lines))" ]; do
            IFS= read -r sbx_l || exit 0
            printf '%s\n' "$sbx_l"
            sbx_i=$((sbx_i + 1))
        done >"$sbx_state/cmd-$sbx_tag" || sbx_refuse "space"
    fi
    sbx_in=/dev/null
    if [ "$sbx_stdin" != - ]; then
        command -v dd || sbx_refuse "dd"
        sbx_in=$sbx_state/in-$sbx_tag
        sbx_plain "$sbx_in"
        sbx_move "$sbx_stdin" >"$sbx_in" || sbx_refuse "space"
    fi
    # Only a request that arrived whole has its last line.
    sbx_take 1
    [ "$sbx_v" = "$sbx_nonce" ] || exit 0
    sbx_admit
    [ -d "$sbx_cwd" ] || mkdir -p "$sbx_cwd"
    cd "$sbx_cwd" || sbx_refuse "cwd"
    sbx_serve sbx_exec
    [ "$sbx_bytes" -le 4096 ] && [ "$sbx_stdin" = - ] ||
        rm -f "$sbx_state/cmd-$sbx_tag" "$sbx_state/in-$sbx_tag"
    [ "$sbx_found" ] || return
    sbx_say "lingering"
    sbx_linger
}

# Becomes the user's command.
# shellcheck disable=SC2329  # a job of sbx_serve
sbx_exec() {
    if [ "$sbx_bytes" -gt 4096 ]; then
        sbx_cmd=". $sbx_state/cmd-$sbx_tag"
    fi
    # The caller's variables may have any name, so none of ours is read after them.
    set -- "$sbx_sh" "$sbx_cmd"
    eval "$sbx_env"
    exec "$1" -c -- "$2"
}

# Takes a request that arrived whole: from here on the container is in use, or it is refused.
sbx_admit() {
    trap 'sbx_cannot_fork' EXIT
    # Over what is there, not in its place: a retirement that meets an empty mark sees nobody.
    sbx_note "$sbx_mark" "$$ busy" || sbx_refuse "state"
    sbx_supersede || sbx_refuse "retiring"
    [ -e "$sbx_state/retired" ] && sbx_refuse "retiring"
    sbx_room || sbx_refuse "fork"
    [ "$sbx_home" ] || return 0
    sbx_directory "$sbx_home" || sbx_refuse "workspace"
    for sbx_v in inputs outputs; do
        sbx_directory "$sbx_home/$sbx_v" || sbx_still_there
    done
}

# Refuses in a workspace that was deleted on the host: it is still mounted, and nothing can be made in
# it. Of what is nowhere any more, the count of names is 0.
sbx_still_there() {
    # shellcheck disable=SC2046,SC2012  # split into words, and only one that has no name is looked at
    set -- $(ls -ldn "$sbx_home/")
    [ "$2" != 0 ] || sbx_refuse "workspace-gone"
}

# Says on both streams how it ended.
sbx_end() {
    sbx_now
    sbx_note "$sbx_state/last" "$sbx_v"
    printf '\036%s end %s %s\n' "$sbx_nonce" "$1" "$2" >&5
    sbx_say "end $1 $2"
}

# Runs job $1 as a tagged child, within the limit and for as long as the client is there.
sbx_serve() {
    sbx_job=$1
    sbx_ooms
    sbx_oom0=$sbx_oom

    (sbx_watch_limit) &
    sbx_watcher=$!
    (sbx_watch_client) <&3 &
    sbx_monitor=$!
    sbx_note "$sbx_mark" "$$ busy $sbx_monitor"
    sbx_look
    # A command's "kill -TERM -1" must not take its own guest along. Set only now: a watcher that
    # was born with a handler could lose the signal that ends it.
    trap : TERM HUP INT
    (
        # shellcheck disable=SC3045  # every shell in use has it, and one that has not refuses
        ulimit -m "$sbx_tag" || { sbx_note "$sbx_state/untagged-$sbx_tag" '' && exit 126; }
        [ -e "$sbx_state/gone-$sbx_tag" ] && exit 137
        "$sbx_job"
    ) <"$sbx_in" >&4 2>&5 3<&- 4>&- 5>&-
    sbx_code=$?
    trap - EXIT TERM HUP INT
    if [ "$sbx_code" = 126 ] && [ -e "$sbx_state/untagged-$sbx_tag" ]; then
        sbx_refuse "tag"
    fi

    sbx_flags=-
    kill -TERM "$sbx_watcher"
    wait "$sbx_watcher"
    case $? in 9) sbx_flags=${sbx_flags}t ;; 8) sbx_flags=${sbx_flags}tu ;; esac
    if [ -e "$sbx_state/gone-$sbx_tag" ]; then
        # The monitor may not be through yet, and the end frame says that nothing is left.
        sbx_sweep "$sbx_tag"
        sbx_flags=${sbx_flags}k
    fi
    sbx_ooms
    [ "$sbx_oom" = "$sbx_oom0" ] || sbx_flags=${sbx_flags}o
    sbx_survivor
    [ "$sbx_found" ] && sbx_flags=${sbx_flags}s
    sbx_end "$sbx_code" "$sbx_flags"
    wait "$sbx_monitor"
    case $sbx_flags in *k*) rm -f "$sbx_state/gone-$sbx_tag" ;; esac
}
