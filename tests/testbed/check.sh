#!/bin/bash
# Tries the testbed: every storage comes up, has the bandwidth it was told, and goes; a run killed at any point leaves
# nothing that `down` does not find. Skipped, loudly, where testbed.sh cannot work (exit code 77).
set -eu
testbed=$(dirname "$0")/testbed.sh
export WEIR_TESTBED=weir-testbed-check-$$
trap '"$testbed" down' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
nothing_left() {
    "$testbed" down || fail "$1: down"
    "$testbed" status >/dev/null && code=0 || code=$?
    [ "$code" = 3 ] || fail "$1: something is left (status $code)"
    echo "ok: $1"
}
# writes FILE MB: MB/s of writing it anew where it lies
writes() {
    local start end
    dd if=/dev/zero of="$1" bs=1M count="$2" conv=notrunc,fsync status=none
    start=$(date +%s%N)
    dd if=/dev/zero of="$1" bs=1M count="$2" conv=notrunc,fsync status=none
    end=$(date +%s%N)
    echo $(($2 * 1048576 * 1000 / (end - start)))
}
# up LEAST MOST STORAGE OPTION…: one file there is written at so many MB/s
up() {
    local least=$1 most=$2 mount rate
    shift 2
    "$testbed" up "$@" >"/tmp/$WEIR_TESTBED.mounts" || { code=$?; [ $code = 77 ] && exit 77; fail "up $*"; }
    "$testbed" status >/dev/null || fail "up $*: status"
    mount=$(head -n 1 "/tmp/$WEIR_TESTBED.mounts")
    rm "/tmp/$WEIR_TESTBED.mounts"
    rate=$(writes "$mount/file" 60)
    if [ "$rate" -lt "$least" ] || [ "$rate" -gt "$most" ]; then fail "$*: $rate MB/s"; fi
    "$testbed" up "$@" 2>/dev/null && fail "up $*: twice"
    nothing_left "up $*: $rate MB/s"
}
# killed SECONDS STORAGE OPTION…: up is killed after that time
killed() {
    local after=$1
    shift
    (timeout -s KILL "$after" "$testbed" up "$@") >/dev/null 2>&1 || true
    nothing_left "up $* killed after $after s"
}

nothing_left "nothing there"
up 40 60 quick -r 50
up 15 25 quick -t 3 -r 20 -s 128
up 15 22 gluster -t 2 -r 20 -c 2
up 15 44 gluster -t 2 -r 20 -l striped # by where the pieces happen to lie
up 15 44 gluster -t 3 -r 20 -l coded
for after in 0.03 0.06 0.1 0.2 0.4 0.6; do killed $after quick -t 4 -s 128; done
for after in 0.05 0.1 0.2 0.4 0.6 0.8; do killed $after gluster -t 4; done
"$testbed" up quick -r 50 -s 128 >/dev/null
sleep 1000 9>"${TMPDIR:-/tmp}/$WEIR_TESTBED/target0/held" &
holder=$!
sleep 0.2
"$testbed" down 2>/dev/null && fail "down says all is undone while a file is held open"
kill $holder
wait $holder 2>/dev/null || true
sleep 0.2
nothing_left "a file was held open"
