#!/bin/bash
# What the first write of a phase waits for: with a coordinator that grants at once and without coordination, alternating; the
# difference of the medians. "alone": nobody else is there, so the phase was granted before it began. "asks": another job had
# a phase in between; where that is not over, or the job was not told in time, the question passes from the rank to the leader, to the
# coordinator, and back. With the coordinator
# elected (in the same process) and as a service (in another, as for those who were not elected).
# Beside what asks, from the same minutes, what the machine takes to ask through as many sleeping processes (wake.c), one
# and two, and nothing else: an idle virtual processor may take 50 µs to wake up.
# shellcheck source=benches/common.sh
. "$(dirname "$0")/common.sh"
repetitions=${REPETITIONS:-5}
count=200
pause_us=20000
goal_us=60
weir_command=${WEIR_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/weir}
unset WEIR_BIN

sockets=$(mktemp -d)
# Turns are taken at a disk, never in memory.
disk=$(mktemp -d /var/tmp/weir-gate.XXXXXX)
# Who asks is granted at once, though the other's phase may not have ended.
export WEIR_POLICY=fair
"$weir_command" coordinator --listen "unix:$sockets/socket" --policy $WEIR_POLICY >"$work/service.log" 2>&1 &
service=$!
trap 'kill $service 2>/dev/null; rm -rf "$sockets" "$disk" "$work"' EXIT
sleep 0.5

run() { # run MPI NAME COORDINATOR
    job "$1" "$3" "$disk/file" $count $pause_us | median >>"$work/times.$1.$2"
}
run_beside() { # run_beside MPI NAME COORDINATOR: of the other job, which comes later, a phase lies between any two
    (sleep 0.5 && job "$1" "$3" "$disk/other" $((count * 13 / 10)) $((pause_us * 9 / 10)) >/dev/null) &
    run "$1" "$2" "$3"
    wait $!
}
job() { # job MPI COORDINATOR FILE COUNT PAUSE_US
    WEIR_PHASE_GAP=1ms WEIR_FREE_BYTES=0 WEIR_COORDINATOR=$2 launch 1 "$weir" "$work/gate.$1" "$3" "$4" "$5"
}
ask_machine() { # ask_machine NAME SLEEPERS
    "$work/wake" "$2" $count $pause_us | median >>"$work/machine.$1"
}
microseconds() { awk '{ printf "%.1f", $1 / 1000 }'; }
differences() { paste "$work/times.$1.$2" "$work/times.$1.off" | awk '{ print $1 - $2 }'; }

cc -O2 -o "$work/wake" "$root/benches/wake.c"
say_load
printf '%-8s %-16s %10s %10s %10s %12s  %s\n' MPI coordinator "off µs" "on µs" "waits µs" "machine µs" "goal $goal_us µs"
for mpi in openmpi mpich; do
    use_mpi $mpi gate || continue
    rm -f "$work"/machine.*
    for _ in $(seq "$repetitions"); do
        run $mpi off off
        run $mpi elected-alone "elect:$sockets"
        run $mpi service-alone "unix:$sockets/socket"
        run_beside $mpi elected-asks "elect:$sockets"
        ask_machine elected-asks 1
        run_beside $mpi service-asks "unix:$sockets/socket"
        ask_machine service-asks 2
    done
    for name in elected-alone service-alone elected-asks service-asks; do
        wait_us=$(differences $mpi $name | median | microseconds)
        machine_us=$(test ! -e "$work/machine.$name" || median <"$work/machine.$name" | microseconds)
        printf '%-8s %-16s %10s %10s %10s %12s  %s\n' $mpi $name "$(median <"$work/times.$mpi.off" | microseconds)" \
            "$(median <"$work/times.$mpi.$name" | microseconds)" "$wait_us" "$machine_us" "$(verdict "$wait_us" $goal_us)"
    done
done
say_load
