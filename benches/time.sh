#!/bin/bash
# Time of a call with Weir as a ratio to the bare call: 64 bytes, one rank, a memory file system.
# Runs alternate (bare, with Weir, and with Darshan when DARSHAN_LIB is set to a libdarshan.so), each gives
# its median; the ratio is the median over the pairs of neighbouring runs, beside it their quartiles.
# shellcheck source=benches/common.sh
. "$(dirname "$0")/common.sh"
repetitions=${REPETITIONS:-11}
count=102400
calls="write_at write_at_all pwrite fwrite"

# What Darshan 3.5 showed in this measurement: the goal is not to be above it.
declare -A known=([write_at]=1.05-1.11 [write_at_all]=1.17-1.29 [pwrite]=1.09-1.14 [fwrite]=3-4.5)

run() { # run MPI NAME PRELOAD: appends a line "NAME CALL NS" per call
    # shellcheck disable=SC2086 # a list of words
    launch 1 "$3" "$work/calls.$1" $count "$work" $calls | sed "s/^/$2 /" >>"$work/times.$1"
}
times() { awk -v who="$2" -v call="$3" '$1 == who && $2 == call { print $3 }' "$work/times.$1"; }
ratios() { paste <(times "$1" "$2" "$3") <(times "$1" bare "$3") | awk '{ print $1 / $2 }'; }
row() { # row MPI NAME CALL GOAL
    printf '%-8s %-13s %-8s %9.1f %9.1f %7.3f  %5.3f-%5.3f  %-11s %s\n' "$1" "$3" "$2" \
        "$(times "$1" bare "$3" | median)" "$(times "$1" "$2" "$3" | median)" "$(ratios "$1" "$2" "$3" | median)" \
        "$(ratios "$1" "$2" "$3" | quantile 0.25)" "$(ratios "$1" "$2" "$3" | quantile 0.75)" \
        "$4" "$([ "$2" = darshan ] || verdict "$(ratios "$1" "$2" "$3" | median)" "${4##*-}")"
}

say_load
printf '%-8s %-13s %-8s %9s %9s %7s  %-11s  %-11s\n' MPI call with "bare ns" "with ns" ratio quartiles "goal: Darshan 3.5's"
for mpi in openmpi mpich; do
    use_mpi $mpi calls || continue
    for _ in $(seq "$repetitions"); do
        run $mpi bare ""
        run $mpi weir "$weir"
        [ -z "${DARSHAN_LIB:-}" ] || run $mpi darshan "$DARSHAN_LIB"
    done
    for call in $calls; do
        row $mpi weir "$call" "${known[$call]}"
        [ -z "${DARSHAN_LIB:-}" ] || row $mpi darshan "$call" "${known[$call]}"
    done
done
echo "goal: at most the upper end of what Darshan 3.5 was found to cost (reference figures, not measured in this run)"
say_load
