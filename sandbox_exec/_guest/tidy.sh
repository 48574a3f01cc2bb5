# Tidies the workspace root, as PID 1 of a container of its own, because the disk is the daemon's.
# Called as: sh -c THIS NAME ROOT SECONDS VERB ARGUMENT...
#   close                    make the root and let nobody but root in; status 7 if it is not ours
#   make KEY                 make a workspace, for an engine that makes no directories
#   stamp KEY=EPOCH...       note that a workspace was used then, unless it was used later
#   look                     "now EPOCH", then "KEY EPOCH" for each workspace and its last use, and
#                            "aside KEY SUFFIX" for each that is set aside
#   aside SUFFIX KEY=EPOCH.. set workspaces aside, unless they were used after EPOCH; prints the keys
#   back SUFFIX KEY...       undo it, unless there is a new workspace meanwhile
#   delete SUFFIX KEY...     delete what was set aside
#   dispose SUFFIX KEY       delete a workspace, whenever it was used
# Setting aside is a rename to .aside-KEY.SUFFIX; what is .removed-* is nobody's any more. The last
# use is the later of the stamp in .last-use and of the change of the directory's inode, which each
# start of a container renews and nobody inside can forge.
LC_ALL=C
export LC_ALL
cd "$1" || exit 1
umask 077
trap 'exit 9' TERM
limit=$2 verb=$3
shift 3
hex='[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'

close_root() {
    for name in * .[!.]*; do
        case $name in
        '*' | '.[!.]*' | lost+found | .removed-* | .aside-* | .last-use) continue ;;
        *[!a-z0-9-]*) exit 7 ;;
        *$hex$hex$hex) ;;
        # A directory that holds anything else is somebody's, and stays as open as it is.
        *) exit 7 ;;
        esac
    done
    chmod 0700 .
}

# Sets stamp to what is noted for workspace $1, empty if nothing sensible is.
noted() {
    stamp=''
    [ -f ".last-use/$1" ] && read -r stamp <".last-use/$1"
    case $stamp in *[!0-9]* | 0?* | ????????????*) stamp='' ;; esac
}

note() {
    mkdir -p .last-use || exit 1
    for pair in "$@"; do
        noted "${pair%%=*}"
        [ "${stamp:-0}" -ge "${pair#*=}" ] || echo "${pair#*=}" >".last-use/${pair%%=*}" || exit 1
    done
}

# Prints "KEY EPOCH" for those of the directories $@ that may be workspaces.
uses() {
    [ $# -gt 0 ] || return 0
    stat -c '%Z %n' "$@" | while read -r used key; do
        noted "$key"
        # One that was never seen before begins to age now.
        [ "$stamp" ] || { note "$key=$now" && stamp=$now; }
        [ "$stamp" -gt "$used" ] && used=$stamp
        echo "$key $used"
    done
}

look() {
    echo "now $now"
    mkdir -p .last-use || exit 1
    set --
    for name in *; do
        case $name in -* | *[!a-z0-9-]*) continue ;; *$hex$hex$hex) ;; *) continue ;; esac
        [ -d "$name" ] && [ ! -h "$name" ] || continue
        set -- "$@" "$name"
        [ $# -lt 500 ] || { uses "$@" || exit 1; set --; }
    done
    uses "$@" || exit 1
    for name in .aside-*.*; do
        [ -d "$name" ] || continue
        name=${name#.aside-}
        echo "aside ${name%%.*} ${name#*.}"
    done
    for name in .last-use/*; do
        [ -d "${name#.last-use/}" ] || rm -f "$name"
    done
    # Left by one that died at it; a younger one may still be at it.
    for name in .removed-*; do
        [ -d "$name" ] || continue
        used=$(stat -c %Z "$name") && [ "$((now - used))" -ge 600 ] && rm -rf "$name"
    done
    return 0
}

aside() {
    suffix=$1
    shift
    for pair in "$@"; do
        key=${pair%%=*}
        [ -d "$key" ] && [ ! -h "$key" ] || continue
        used=$(uses "$key") || exit 1
        [ "${used#* }" -le "${pair#*=}" ] || continue
        mv "$key" ".aside-$key.$suffix" && echo "$key"
    done
    return 0
}

back() {
    suffix=$1
    shift
    for key in "$@"; do
        [ -e "$key" ] || [ ! -e ".aside-$key.$suffix" ] || mv ".aside-$key.$suffix" "$key" || exit 1
    done
}

# Deletes what is called $1, by way of a name that is nobody's: another process may help.
discard() {
    mv "$1" ".removed-$2" || { [ ! -e "$1" ] && return; }
    for _ in 1 2 3; do
        rm -rf ".removed-$2" && break
        sleep 1
    done
    [ ! -e ".removed-$2" ]
}

delete() {
    suffix=$1
    shift
    for key in "$@"; do
        [ ! -e ".aside-$key.$suffix" ] || discard ".aside-$key.$suffix" "$key.$suffix" || exit 1
        # A new workspace may have the name meanwhile, and its stamp.
        [ -e "$key" ] || rm -f ".last-use/$key"
    done
}

discard_aside() {
    for name in ".aside-$1".*; do
        [ ! -e "$name" ] || discard "$name" "${name#.aside-}" || exit 1
    done
}

# What is set aside may be put back meanwhile, and the other way round.
dispose() {
    discard_aside "$2"
    [ ! -e "$2" ] || discard "$2" "$2.$1" || exit 1
    discard_aside "$2"
    rm -f ".last-use/$2"
}

now=$(date +%s) || exit 1
case $verb in
close) close_root ;;
make) mkdir -p "$1" ;;
stamp) note "$@" ;;
look) look ;;
aside) aside "$@" ;;
back) back "$@" ;;
delete) delete "$@" ;;
dispose) dispose "$@" ;;
*) exit 2 ;;
esac &
work=$!
# What hangs on a disk that does not answer is ended with PID 1, and never waits for its client.
(sleep "$limit" && kill -TERM $$) &
wait "$work"
