# The guest: the only thing that runs a user's command, in one-off and session calls alike.
# Called as: sh -c 'eval "$SANDBOX_EXEC_GUEST"' NAME STATE_DIR WORKSPACE. Needs nothing but a POSIX
# sh: what else it uses, it can do without, or refuses. Variables are named sbx_* and unset first,
# since one that came in through the environment would be exported to the command, nonce included.
#
# Standard input carries, line by line:
#   NONCE TAG                       once, first: "ready PROTOCOL BOOT" on both streams, or "refused
#                                   retiring" on the first
#   run LIMIT CWD ENV CMD BYTES IN  numbers of lines, then bytes of command and of standard input
#   retire IDLE                     stop the container unless it was used in the last IDLE seconds:
#                                   "retired", or "kept SECONDS" that it may yet be used for
#   reap TAG                        end the tree of another's command: "reaped STATUS"
#   signal TAG NUMBER               signal a spawned process: "signalled STATUS"
#   put LINES                       path, nonce, then chunks: "BYTES", so many bytes; last "end"
#   read LIMIT MAX LINES            path, nonce: "kind KIND BYTES", then the bytes of a file
#   harvest BYTES LINES SIZES       outbox, nonce: lists, is told what to claim, packs it, and
#                                   deletes it once it is told that it was received; see there
#   kill                            while a command runs: end its whole tree
#   done                            the client has seen the end frames
# Its end, while a command runs, means that the client is gone: then the tree is killed.
# Frames are \036 NONCE, a word, arguments, a newline; the last on each stream is "end".
#
# Three processes serve a command: this one runs it in the foreground, since a background child of
# a shell ignores SIGINT for good; the monitor reads standard input meanwhile; the watcher holds
# the limit. The command's tree is found by its tag, an RLIMIT_RSS that does nothing else.
unset SANDBOX_EXEC_GUEST sbx_state sbx_home sbx_nonce sbx_tag sbx_sh sbx_mark sbx_limit sbx_cwd sbx_env sbx_cmd sbx_in \
    sbx_n sbx_i sbx_v sbx_l sbx_f sbx_k sbx_p sbx_t sbx_h sbx_d sbx_code sbx_flags sbx_before \
    sbx_watcher sbx_monitor sbx_s0 sbx_c0 sbx_s1 sbx_c1 sbx_oom sbx_oom0 sbx_known sbx_found \
    sbx_q sbx_r sbx_nl sbx_verb sbx_bytes sbx_lines sbx_stdin sbx_e \
    sbx_job sbx_file sbx_dir sbx_max sbx_claim sbx_lock
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
    # Said first: what follows needs a process, of which there may be none left.
    sbx_say "refused $1"
    sbx_clear
    exit 0
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

# Moves exactly $1 bytes of standard input to standard output.
sbx_move() {
    sbx_q=$(($1 / 65536)) sbx_r=$(($1 % 65536))
    { [ "$sbx_q" = 0 ] || dd bs=65536 count="$sbx_q" iflag=fullblock; } &&
        { [ "$sbx_r" = 0 ] || dd bs="$sbx_r" count=1 iflag=fullblock; }
}

# Whether the guest of tag $1 lives: its number may be another's by now, so what it runs is looked at.
sbx_alive() {
    sbx_words "$sbx_state/run-$1"
    case $sbx_v in '' | *[!0-9]*) return 1 ;; esac
    sbx_l=''
    IFS= read -r sbx_l <"/proc/$sbx_v/cmdline"
    case $sbx_l in *SANDBOX_EXEC_GUEST*) ;; *) return 1 ;; esac
}

sbx_clear() {
    sbx_note "$sbx_mark" "$$ idle"
    rm -f "$sbx_mark" "$sbx_state/gone-$sbx_tag"
}
