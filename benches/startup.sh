#!/bin/bash
# What Weir adds to the life of a program that does next to nothing: four ranks with a little I/O, four ranks
# without any, and a program that is not MPI at all. Runs alternate; the difference is the median over the
# pairs of neighbouring runs, beside it the interval that holds the true median with 95 % confidence. When
# the goal lies inside it, this run cannot tell: more REPETITIONS or a quieter machine can.
# shellcheck source=benches/common.sh
. "$(dirname "$0")/common.sh"
repetitions=${REPETITIONS:-31}
goal=5
batch=50 # runs of /bin/true that are timed together

timed() { # timed FILE COMMAND...: appends the milliseconds
    local file=$1 start=$EPOCHREALTIME
    shift
    "$@" >/dev/null
    awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f\n", 1000 * (b - a) }' >>"$file"
}
many_true() { # many_true PRELOAD
    for _ in $(seq $batch); do env ${1:+LD_PRELOAD="$1"} /bin/true; done
}
compare() { # compare WHAT GOAL RUNS COMMAND PRELOAD-POSITION-ARGUMENTS...: `once PRELOAD ARGUMENTS` both ways
    local what=$1 goal=$2 runs=$3 bare=$work/bare with=$work/with
    shift 3
    rm -f "$bare" "$with"
    once "" "$@"
    once "$weir" "$@"
    for i in $(seq "$repetitions"); do
        if ((i % 2)); then
            timed "$bare" once "" "$@"
            timed "$with" once "$weir" "$@"
        else
            timed "$with" once "$weir" "$@"
            timed "$bare" once "" "$@"
        fi
        rm -rf "${WEIR_DIR:?}"/*
    done
    paste "$with" "$bare" | awk -v n="$runs" '{ print ($1 - $2) / n }' | sort -g >"$work/differences"
    awk -v what="$what" -v goal="$goal" -v runs="$runs" -v bare="$(median <"$bare")" -v with="$(median <"$with")" '
        { d[NR] = $1 }
        END {
            middle = (d[int((NR + 1) / 2)] + d[int(NR / 2) + 1]) / 2
            # The sign test: order statistics 0.98 sqrt(n) away from the middle.
            k = int(NR / 2 - 0.98 * sqrt(NR)); if (k < 1) k = 1
            low = d[k]; high = d[NR + 1 - k]
            if (goal != "-") said = high <= goal ? "pass" : low > goal ? "OVER" : middle <= goal ? "pass, unsure" : "OVER, unsure"
            printf "%-22s %9.2f %9.2f %9.2f  %7.2f..%-7.2f  %-6s %s\n", what, bare / runs, with / runs, middle, low, high,
                goal == "-" ? "-" : "< " goal, said
        }' "$work/differences"
}
once() { # once PRELOAD (true | RANKS COMMAND...)
    local preload=$1
    shift
    if [ "$1" = true ]; then many_true "$preload"; else launch "$1" "$preload" "${@:2}"; fi
}

say_load
printf '%-22s %9s %9s %9s  %-16s  %-6s (milliseconds, median of %s)\n' program bare "with Weir" more "95 % interval" goal "$repetitions"
for mpi in openmpi mpich; do
    use_mpi $mpi startup || continue
    compare "$mpi, 4 ranks, I/O" $goal 1 4 "$work/startup.$mpi" "$work/data"
    compare "$mpi, 4 ranks, no I/O" $goal 1 4 "$work/startup.$mpi"
done
compare "/bin/true" - $batch true
say_load
