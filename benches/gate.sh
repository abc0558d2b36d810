#!/bin/bash
# What it takes to ask for a turn and get it: the first write of a phase, with a coordinator that grants at
# once and without coordination, alternating. The difference of the medians is the round trip through the
# gate: rank, leader, coordinator, and back. With the coordinator elected (in the same process) and as a service.
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
microseconds() { awk '{ printf "%.1f", $1 / 1000 }'; }
differences() { paste "$work/times.$1.$2" "$work/times.$1.off" | awk '{ print $1 - $2 }'; }

say_load
printf '%-8s %-10s %12s %12s %14s  %s\n' MPI coordinator "off µs" "on µs" "round trip µs" "goal $goal_us µs"
for mpi in openmpi mpich; do
    use_mpi $mpi gate || continue
    for _ in $(seq "$repetitions"); do
        run $mpi off off
        run $mpi elected "elect:$sockets"
        run $mpi service "unix:$sockets/socket"
    done
    for name in elected service; do
        trip_us=$(differences $mpi $name | median | microseconds)
        printf '%-8s %-10s %12s %12s %14s  %s\n' $mpi $name "$(median <"$work/times.$mpi.off" | microseconds)" \
            "$(median <"$work/times.$mpi.$name" | microseconds)" "$trip_us" "$(verdict "$trip_us" $goal_us)"
    done
done
say_load
