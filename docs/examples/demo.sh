#!/bin/sh
# Two commands in one session: the second finds the file that the first one left.
set -eu

# A deployment of its own: whatever sessions a user of this engine has, none of them is touched.
deployment=demo-$$
image=${SANDBOX_EXEC_DEMO_IMAGE:-sandbox-exec/busybox}

# A demo that only prints would also "work" when nothing does, so each call names what it expects.
call() {
    expected=$1
    command=$2
    printf "\n$ sandbox-exec run --deployment %s --session demo --image %s -- '%s'\n" \
        "$deployment" "$image" "$command"
    status=0
    sandbox-exec run --deployment "$deployment" --session demo --image "$image" -- "$command" \
        </dev/null || status=$?
    printf '[exit code %s]\n' "$status"
    if [ "$status" -ne "$expected" ]; then
        printf 'demo: expected exit code %s\n' "$expected" >&2
        exit 1
    fi
}

# Also when a call failed: a demo leaves nothing behind.
remove() {
    printf '\n$ sandbox-exec rm --deployment %s demo\n' "$deployment"
    sandbox-exec rm --deployment "$deployment" demo
}
trap remove EXIT

# What the calls below need not say: which program leads to the engine.
printf 'demo: the engine is %s, with the image %s\n' "${SANDBOX_EXEC_ENGINE:-docker}" "$image"

# The commands are expanded in the sandbox, not here.
# shellcheck disable=SC2016
{
    call 0 'echo "written by the first call, in $(pwd)" > note.txt; ls -l note.txt'
    call 3 'cat note.txt && echo "and a failing command is a value, not an error" && exit 3'
}

trap - EXIT
remove
program=$(command -v sandbox-exec)
printf '\ndemo: it worked. Where an engine answers, call it yourself, with an image of yours:\n'
printf '    %s doctor --image IMAGE\n' "$program"
printf '    %s run --image IMAGE -- "echo hello"\n' "$program"
