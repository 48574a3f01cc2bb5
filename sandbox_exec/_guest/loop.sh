# The guest: the only thing that runs a user's command, in one-off and session calls alike.
# Called as: sh -c 'eval "$SANDBOX_EXEC_GUEST"' NAME STATE_DIR WORKSPACE. Needs nothing but a POSIX
# sh: what else it uses, it can do without, or refuses. Variables are named sbx_* and unset first,
# since one that came in through the environment would be exported to the command, nonce included.
#
# Standard input carries, line by line:
#   NONCE TAG                       once, before anything else: "ready PROTOCOL" on both streams
#   run LIMIT CWD ENV CMD BYTES IN  numbers of lines, then bytes of command and of standard input
#   reap TAG                        end the tree of another guest's command: "reaped STATUS"
#   kill                            while a command runs: end its whole tree
#   done                            the client has seen the end frames
# Its end, while a command runs, means that the client is gone: then the tree is killed.
# Frames are \036 NONCE, a word, arguments, a newline; the last on each stream is "end".
#
# Three processes serve a command: this one runs it in the foreground, since a background child of
# a shell ignores SIGINT for good; the monitor reads standard input meanwhile; the watcher holds
# the limit. The command's tree is found by its tag, an RLIMIT_RSS that does nothing else.
unset SANDBOX_EXEC_GUEST sbx_state sbx_home sbx_nonce sbx_tag sbx_sh sbx_mark sbx_limit sbx_cwd sbx_env sbx_cmd sbx_in \
    sbx_n sbx_i sbx_v sbx_l sbx_f sbx_k sbx_p sbx_t sbx_d sbx_code sbx_flags sbx_before \
    sbx_watcher sbx_monitor sbx_s0 sbx_c0 sbx_s1 sbx_c1 sbx_oom sbx_oom0 sbx_known sbx_found \
    sbx_q sbx_r sbx_nl sbx_verb sbx_bytes sbx_lines sbx_stdin sbx_e
sbx_state=$1 sbx_home=$2
sbx_nl='
'
IFS=' '
IFS=' ' read -r sbx_nonce sbx_tag || exit 0
sbx_mark=$sbx_state/run-$sbx_tag
sbx_sh=/bin/sh
[ -x "$sbx_sh" ] || sbx_sh='sh'
exec 3<&0 4>&1 5>&2 >/dev/null 2>&1

sbx_say() { printf '\036%s %s\n' "$sbx_nonce" "$1" >&4; }

sbx_refuse() {
    trap - EXIT
    [ "$sbx_watcher" ] && kill -TERM "$sbx_watcher"
    sbx_clear
    sbx_say "refused $1"
    exit 0
}

# A shell that cannot fork gives up, and runs this on its way out. So may a child that bash ends
# before it has forgotten its parent's traps, and it speaks for nobody.
# shellcheck disable=SC2329  # by the trap
sbx_cannot_fork() {
    read -r sbx_v sbx_l </proc/self/stat
    [ "$sbx_v" = $$ ] && sbx_refuse fork
}

# Sets sbx_v to the next $1 lines of standard input.
sbx_take() {
    sbx_v='' sbx_i=0
    while [ "$sbx_i" -lt "$1" ]; do
        IFS= read -r sbx_l || exit 0
        sbx_v=$sbx_v$sbx_l$sbx_nl
        sbx_i=$((sbx_i + 1))
    done
    sbx_v=${sbx_v%?}
}

# Moves exactly $1 bytes of standard input into file $2.
sbx_spool() {
    sbx_q=$(($1 / 65536)) sbx_r=$(($1 % 65536))
    {
        { [ "$sbx_q" = 0 ] || dd bs=65536 count="$sbx_q" iflag=fullblock; } &&
            { [ "$sbx_r" = 0 ] || dd bs="$sbx_r" count=1 iflag=fullblock; }
    } >"$2"
}

# Sets sbx_t to the RSS limit of process $1, empty when there is none to be read.
sbx_rss() {
    sbx_t=
    while read -r sbx_k sbx_l sbx_v sbx_t sbx_f; do
        case $sbx_k$sbx_l$sbx_v in Maxresidentset) return ;; esac
    done <"/proc/$1/limits"
    sbx_t=
}

# Sets sbx_known to the tags that belong to somebody.
sbx_tags() {
    sbx_known=' '
    for sbx_f in "$sbx_state"/run-*; do
        case ${sbx_f##*-} in *[!0-9]*) continue ;; esac
        sbx_known="$sbx_known$((${sbx_f##*-} * 1024)) "
    done
}

# Kills every process that carries the tag $1, until a pass finds none; also one whose limit
# belongs to nobody: only a command that tries to hide lowers its own.
sbx_sweep() {
    sbx_tags
    sbx_e=$(($1 * 1024))
    sbx_now
    sbx_s0=$sbx_s1 sbx_c0=$sbx_c1
    while :; do
        sbx_found=
        for sbx_d in /proc/[0-9]*; do
            sbx_p=${sbx_d#/proc/}
            sbx_rss "$sbx_p"
            case $sbx_t in
            '' | unlimited | *[!0-9]*) continue ;;
            "$sbx_e") ;;
            *)
                case $sbx_known in *" $sbx_t "*) continue ;; esac
                # It may belong to a call that began after the list was made.
                sbx_tags
                case $sbx_known in *" $sbx_t "*) continue ;; esac
                ;;
            esac
            kill -9 "$sbx_p" && sbx_found=1
        done
        [ "$sbx_found" ] || return 0
        sbx_now
        [ "$(((sbx_s1 - sbx_s0) * 100 + sbx_c1 - sbx_c0))" -lt 150 ] || return 1
    done
}

# Sets sbx_s1 and sbx_c1: seconds, and 1 before the two digits of hundredths, as neither may begin
# with a 0, which arithmetic would take for octal. Asks again for anything that is no time: when a
# process ends while its limits are read, bash hands their rest to the next read of another file.
sbx_now() {
    sbx_v=''
    until [ "$sbx_v" ]; do
        read -r sbx_v sbx_l </proc/uptime
        case $sbx_v in *[!0-9.]*) sbx_v='' ;; esac
    done
    sbx_s1=${sbx_v%.*} sbx_c1=1${sbx_v#*.}
}

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
    if ! echo >"$sbx_state/gone-$sbx_tag"; then
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

sbx_clear() {
    echo "$$ idle" >"$sbx_mark"
    rm -f "$sbx_mark" "$sbx_state/gone-$sbx_tag"
}

# Stays while background processes of the command live. If it left, the engine would hold up the
# next call on this container and cut off their output (hazard F20).
sbx_linger() {
    [ $$ = 1 ] && exit 0
    sbx_n=0
    for sbx_f in "$sbx_state"/run-*; do
        sbx_v=
        read -r sbx_v sbx_l <"$sbx_f"
        [ "$sbx_l" = linger ] && [ -d "/proc/$sbx_v" ] && sbx_n=$((sbx_n + 1))
    done
    [ "$sbx_n" -lt 16 ] || exit 0
    echo "$$ linger" >"$sbx_mark"
    sbx_e=$((sbx_tag * 1024)) sbx_n=1
    while :; do
        sleep "$sbx_n" || exit 0
        sbx_found=
        for sbx_d in /proc/[0-9]*; do
            sbx_rss "${sbx_d#/proc/}"
            [ "$sbx_t" = "$sbx_e" ] && sbx_found=1 && break
        done
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
    elif command -v dd; then
        sbx_spool "$sbx_bytes" "$sbx_state/cmd-$sbx_tag" || sbx_refuse "space"
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
        sbx_spool "$sbx_stdin" "$sbx_in" || sbx_refuse "space"
    fi
    # Only a request that arrived whole has its last line.
    sbx_take 1
    [ "$sbx_v" = "$sbx_nonce" ] || exit 0
    trap 'sbx_cannot_fork' EXIT

    echo "$$ busy" >"$sbx_mark" || sbx_refuse "state"
    [ -e "$sbx_state/retiring" ] && sbx_refuse "retiring"
    sbx_directory "$sbx_home" || sbx_refuse "workspace"
    sbx_directory "$sbx_home/inputs"
    sbx_directory "$sbx_home/outputs"
    [ -d "$sbx_cwd" ] || mkdir -p "$sbx_cwd"
    cd "$sbx_cwd" || sbx_refuse "cwd"
    sbx_ooms
    sbx_oom0=$sbx_oom

    (sbx_watch_limit) &
    sbx_watcher=$!
    (sbx_watch_client) <&3 &
    sbx_monitor=$!
    echo "$$ busy $sbx_monitor" >"$sbx_mark"
    set -- /proc/[0-9]*
    sbx_before=" $* "
    # A command's "kill -TERM -1" must not take its own guest along. Set only now: a watcher that
    # was born with a handler could lose the signal that ends it.
    trap : TERM HUP INT
    (
        # shellcheck disable=SC3045  # every shell in use has it, and one that has not refuses
        ulimit -m "$sbx_tag" || { echo >"$sbx_state/untagged-$sbx_tag" && exit 126; }
        [ -e "$sbx_state/gone-$sbx_tag" ] && exit 137
        if [ "$sbx_bytes" -gt 4096 ]; then
            sbx_cmd=". $sbx_state/cmd-$sbx_tag"
        fi
        # The caller's variables may have any name, so none of ours is read after them.
        set -- "$sbx_sh" "$sbx_cmd"
        eval "$sbx_env"
        exec "$1" -c -- "$2"
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
    sbx_found=
    for sbx_d in /proc/[0-9]*; do
        case $sbx_before in *" $sbx_d "*) continue ;; esac
        sbx_rss "${sbx_d#/proc/}"
        [ "$sbx_t" = "$((sbx_tag * 1024))" ] && sbx_found=1 && break
    done
    [ "$sbx_found" ] && sbx_flags=${sbx_flags}s
    sbx_now
    echo "$sbx_v" >"$sbx_state/last"
    printf '\036%s end %s %s\n' "$sbx_nonce" "$sbx_code" "$sbx_flags" >&5
    sbx_say "end $sbx_code $sbx_flags"

    wait "$sbx_monitor"
    case $sbx_flags in *k*) rm -f "$sbx_state/gone-$sbx_tag" ;; esac
    [ "$sbx_bytes" -le 4096 ] && [ "$sbx_stdin" = - ] ||
        rm -f "$sbx_state/cmd-$sbx_tag" "$sbx_state/in-$sbx_tag"
    [ "$sbx_found" ] || return
    sbx_say "lingering"
    sbx_linger
}

# Ends the command with the tag $1, and its guest, which may wait for ever for a client that is gone:
# an engine that was killed leaves its standard input open (live-restore).
sbx_reap() {
    echo >"$sbx_state/gone-$1"
    sbx_sweep "$1"
    sbx_code=$?
    sbx_v='' sbx_l='' sbx_p=''
    read -r sbx_v sbx_l sbx_p <"$sbx_state/run-$1"
    case $sbx_l$sbx_v$sbx_p in busy*[!0-9]*) ;; busy?*) kill -9 "$sbx_v" ${sbx_p:+"$sbx_p"} ;; esac
    rm -f "$sbx_state/run-$1" "$sbx_state/gone-$1"
    sbx_say "reaped $sbx_code"
}

# On both streams, as the engine's program may have put words of its own on either.
printf '\036%s ready 1\n' "$sbx_nonce" >&5
sbx_say "ready 1"
sbx_watcher=
while read -r sbx_verb sbx_limit sbx_cwd sbx_env sbx_lines sbx_bytes sbx_stdin; do
    case $sbx_verb in
    run) sbx_run "$sbx_cwd" "$sbx_env" "$sbx_lines" "$sbx_bytes" "$sbx_stdin" ;;
    reap) sbx_reap "$sbx_limit" ;;
    esac
done
sbx_clear
exit 0
