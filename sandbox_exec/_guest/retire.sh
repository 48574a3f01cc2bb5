# The verb "retire": check that nobody uses the container and stop it, as one step.

# Stops the container if it has been idle for $1 seconds. What runs writes its mark and then looks
# for "retiring"; this writes "retiring" and then looks at every mark, so one sees the other. The
# last step renames "retiring": a call that took it away, because it was old, has won.
sbx_retire() {
    sbx_note "$sbx_mark" "$$ sweep"
    sbx_plain "$sbx_state/retiring"
    sbx_now
    sbx_s0=$sbx_s1
    if ! (set -C && echo "$sbx_s0" >"$sbx_state/retiring"); then
        if sbx_is_retiring; then
            sbx_say "kept 10"
            return
        fi
        sbx_note "$sbx_state/retiring" "$sbx_s0"
    fi
    sbx_n=0
    for sbx_f in "$sbx_state"/run-*; do
        sbx_words "$sbx_f"
        case $sbx_v in '' | *[!0-9]*) continue ;; esac
        [ -d "/proc/$sbx_v" ] || continue
        case $sbx_l in
        busy) sbx_n=$(($1 + 1)) ;;
        # Its request is on the way.
        here) [ "$sbx_n" -gt 0 ] || sbx_n=1 ;;
        esac
    done
    # Read after the marks: whoever cleared one has written this before.
    sbx_words "$sbx_state/last"
    sbx_q=${sbx_v%.*}
    case $sbx_q in '' | *[!0-9]* | ???????????*) sbx_q=$sbx_s0 ;; esac
    [ "$sbx_n" -gt 0 ] || sbx_n=$(($1 - sbx_s0 + sbx_q))
    if [ "$sbx_n" -gt 0 ]; then
        rm -f "$sbx_state/retiring"
        sbx_say "kept $sbx_n"
    elif mv "$sbx_state/retiring" "$sbx_state/retired"; then
        sbx_say "retired"
        sbx_words "$sbx_state/sleep"
        case $sbx_v in '' | 0 | 1 | *[!0-9]* | ????????*) return ;; esac
        kill -9 "$sbx_v"
    else
        sbx_say "kept $1"
    fi
}
