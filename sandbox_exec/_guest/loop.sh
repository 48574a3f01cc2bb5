# The loop of the guest: requests are read here, and served by the other files.

# Before READY, since what is sent after it must not be lost to a retirement: that keeps a container
# in which a guest waits for its request, and a guest that comes too late says so.
sbx_watcher=
sbx_note "$sbx_mark" "$$ here"
[ -e "$sbx_state/retired" ] && sbx_refuse "retiring"
sbx_is_retiring && sbx_refuse "retiring"
sbx_ready
while read -r sbx_verb sbx_limit sbx_cwd sbx_env sbx_lines sbx_bytes sbx_stdin; do
    case $sbx_verb in
    run) sbx_run "$sbx_cwd" "$sbx_env" "$sbx_lines" "$sbx_bytes" "$sbx_stdin" ;;
    put) sbx_put "$sbx_limit" ;;
    read) sbx_read "$sbx_cwd" "$sbx_env" ;;
    harvest) sbx_harvest "$sbx_limit" "$sbx_cwd" "$sbx_env" ;;
    retire) sbx_retire "$sbx_limit" ;;
    reap) sbx_reap "$sbx_limit" ;;
    signal) sbx_signal "$sbx_limit" "$sbx_cwd" ;;
    esac
done
sbx_clear
exit 0
