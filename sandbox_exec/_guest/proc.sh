# What the guest and the spawn wrapper both read of /proc and of the container's state.

# Sets sbx_v, sbx_l and sbx_k to the words of file $1, empty if it says nothing. A command can put
# anything in its place, and to open a fifo would wait for ever.
sbx_words() {
    sbx_v='' sbx_l='' sbx_k=''
    [ -f "$1" ] && read -r sbx_v sbx_l sbx_k <"$1"
}

# Has file $1 say $2; so opened, no fifo waits. What was longer ends in a line that nobody reads.
sbx_note() {
    sbx_plain "$1"
    echo "$2" 1<>"$1"
}

# Makes way for a file of ours at $1.
sbx_plain() { [ -f "$1" ] || [ ! -e "$1" ] || rm -rf "$1"; }

# Sets sbx_s1 and sbx_c1: seconds, and 1 before the two digits of hundredths, as neither may begin
# with a 0, which arithmetic would take for octal. Asks again for anything that is no time: when a
# process ends while its limits are read, bash hands their rest to the next read of another file.
sbx_now() {
    sbx_v=''
    until [ "$sbx_v" ]; do
        read -r sbx_v sbx_l </proc/uptime
        case $sbx_v in *[!0-9.]*) sbx_v='' ;; esac
    done
    # shellcheck disable=SC2034  # by those who count in hundredths
    sbx_s1=${sbx_v%.*} sbx_c1=1${sbx_v#*.}
}

# Sets sbx_t and sbx_h to the soft and the hard RSS limit of process $1, empty when there are none to
# be read. A tag is both; its bearer can lower either, and raise the soft one up to the hard one.
sbx_rss() {
    sbx_t='' sbx_h=''
    # shellcheck disable=SC2034  # the last one takes the rest of the line
    while read -r sbx_k sbx_l sbx_v sbx_t sbx_h sbx_f; do
        case $sbx_k$sbx_l$sbx_v in Maxresidentset) return ;; esac
    done <"/proc/$1/limits"
    sbx_t='' sbx_h=''
}

# Whether process $1 carries the tag $2.
sbx_carries() {
    sbx_rss "$1"
    case " $sbx_t $sbx_h " in *" $(($2 * 1024)) "*) ;; *) return 1 ;; esac
}

# Sets sbx_q to the second in which a retirement began, 0 when that cannot be told.
sbx_retiring_since() {
    sbx_words "$sbx_state/retiring"
    sbx_q=$sbx_v
    case $sbx_q in '' | *[!0-9]* | ???????????*) sbx_q=0 ;; esac
}

# Whether somebody is at a retirement now. One that died at it no longer counts.
sbx_is_retiring() {
    [ -e "$sbx_state/retiring" ] || return 1
    sbx_retiring_since
    sbx_now
    [ "$((sbx_s1 - sbx_q))" -lt 10 ]
}

# Takes a retirement over that somebody died at; fails while one is under way.
sbx_supersede() {
    [ -e "$sbx_state/retiring" ] || return 0
    sbx_is_retiring && return 1
    mv "$sbx_state/retiring" "$sbx_state/stale-$sbx_tag" || return 1
    rm -f "$sbx_state/stale-$sbx_tag"
    return 0
}

# Says that this is ready, and which start of the container it is: on both streams, as the engine's
# program may have put words of its own on either.
sbx_ready() {
    sbx_words "$sbx_state/boot"
    case $sbx_v in '' | *[!0-9.]*) sbx_v=- ;; esac
    printf '\036%s ready 1 %s\n' "$sbx_nonce" "$sbx_v" >&5
    sbx_say "ready 1 $sbx_v"
}

# A shell that cannot fork gives up, and runs this on its way out. So may a child that bash ends
# before it has forgotten its parent's traps, and it speaks for nobody.
# shellcheck disable=SC2329  # by the trap
sbx_cannot_fork() {
    read -r sbx_v sbx_l </proc/self/stat
    [ "$sbx_v" = $$ ] && sbx_refuse fork "the sandbox has no process left"
}

# Sets sbx_before to the processes there are.
sbx_look() {
    set -- /proc/[0-9]*
    sbx_before=" $* "
}

# Sets sbx_found to a process that carries the tag, of those that are not in sbx_before.
sbx_survivor() {
    sbx_found=
    for sbx_d in /proc/[0-9]*; do
        case $sbx_before in *" $sbx_d "*) continue ;; esac
        sbx_carries "${sbx_d#/proc/}" "$sbx_tag" || continue
        sbx_found=${sbx_d#/proc/}
        return
    done
}
