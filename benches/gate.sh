#!/bin/bash
# What it takes to ask for a turn and get it: the first write of a phase, with a coordinator that grants at
# once and without coordination, alternating. The difference of the medians is the round trip through the
# gate: rank, leader, coordinator, and back. With the coordinator elected (in the same process) and as a service.
# Beside it, from the same minutes, what the machine takes to ask through as many sleeping processes (wake.c), one
# and two, and nothing else: an idle virtual processor may take 50 µs to wake up.
# shellcheck source=benches/common.sh
. "$(dirname "$0")/common.sh"
repetitions=${REPETITIONS:-7}
count=200
pause_us=20000
goal_us=60
weir_command=${WEIR_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/weir}
unset WEIR_BIN

sockets=$(mktemp -d)
"$weir_command" coordinator --listen "unix:$sockets/socket" >"$work/service.log" 2>&1 &
service=$!
trap 'kill $service 2>/dev/null; rm -rf "$sockets" "$work"' EXIT
sleep 0.5

run() { # run MPI NAME COORDINATOR
    WEIR_PHASE_GAP=1ms WEIR_COORDINATOR=$3 launch 1 "$weir" "$work/gate.$1" "$work/file" $count $pause_us |
        median >>"$work/times.$1.$2"
}
ask_machine() { # ask_machine NAME SLEEPERS
    "$work/wake" "$2" $count $pause_us | median >>"$work/machine.$1"
}
microseconds() { awk '{ printf "%.1f", $1 / 1000 }'; }
differences() { paste "$work/times.$1.$2" "$work/times.$1.off" | awk '{ print $1 - $2 }'; }

cc -O2 -o "$work/wake" "$root/benches/wake.c"
say_load
printf '%-8s %-10s %12s %12s %14s %12s  %s\n' \
    MPI coordinator "off µs" "on µs" "round trip µs" "machine µs" "goal $goal_us µs"
for mpi in openmpi mpich; do
    use_mpi $mpi gate || continue
    rm -f "$work"/machine.*
    for _ in $(seq "$repetitions"); do
        run $mpi off off
        run $mpi elected "elect:$sockets"
        ask_machine elected 1
        run $mpi service "unix:$sockets/socket"
        ask_machine service 2
    done
    for name in elected service; do
        trip_us=$(differences $mpi $name | median | microseconds)
        printf '%-8s %-10s %12s %12s %14s %12s  %s\n' $mpi $name "$(median <"$work/times.$mpi.off" | microseconds)" \
            "$(median <"$work/times.$mpi.$name" | microseconds)" "$trip_us" \
            "$(median <"$work/machine.$name" | microseconds)" "$(verdict "$trip_us" $goal_us)"
    done
done
say_load
