#!/bin/bash
# What Weir adds to the life of a program that does next to nothing: four ranks with a little I/O, four ranks
# without any, and a program that is not MPI at all. Runs alternate; "more" is the median over the pairs of
# neighbouring runs, beside it the interval that holds the true median with 95 % confidence. When the goal
# lies inside, this run cannot tell: more REPETITIONS or a quieter machine can. What else a machine does makes
# runs slower, never faster, so that the difference of the fastest runs is told as well; and what does not
# depend on the machine at all: the instructions of one rank from its start to its end.
# shellcheck source=benches/common.sh
. "$(dirname "$0")/common.sh"
repetitions=${REPETITIONS:-31}
goal_ms=5

timed() { # timed FILE COMMAND...: appends the milliseconds
    local file=$1 start=${EPOCHREALTIME/./} us
    shift
    "$@" >/dev/null
    us=$((${EPOCHREALTIME/./} - start))
    printf '%d.%03d\n' $((us / 1000)) $((us % 1000)) >>"$file"
}
compare() { # compare WHAT GOAL REPETITIONS FUNCTION ARGUMENTS...: a row; the function gets PRELOAD ARGUMENTS
    local what=$1 goal=$2 runs=$3 run=$4 bare=$work/bare with=$work/with
    shift 4
    rm -f "$bare" "$with"
    "$run" "" "$@"
    "$run" "$weir" "$@"
    for i in $(seq "$runs"); do
        ((i % 2)) || timed "$with" "$run" "$weir" "$@"
        timed "$bare" "$run" "" "$@"
        ((i % 2)) && timed "$with" "$run" "$weir" "$@"
        rm -rf "${WEIR_DIR:?}"/*
    done
    paste "$with" "$bare" | awk '{ print $1 - $2 }' | sort -g |
        awk -v what="$what" -v goal="$goal" -v bare="$(median <"$bare")" -v with="$(median <"$with")" \
            -v fastest_bare="$(quantile 0 <"$bare")" -v fastest_with="$(quantile 0 <"$with")" '
            { more[NR] = $1 }
            END {
                middle = (more[int((NR + 1) / 2)] + more[int(NR / 2) + 1]) / 2
                k = int(NR / 2 - 0.98 * sqrt(NR)) # the sign test: 0.98 sqrt(n) places from the middle
                low = more[k < 1 ? 1 : k]; high = more[k < 1 ? NR : NR + 1 - k]
                said = !goal ? "" : high < goal ? "pass" : low >= goal ? "OVER" : "cannot tell"
                printf "%-24s %8.2f %9.2f %7.2f  %7.2f..%-7.2f %13.2f  %-5s %s\n", what, bare, with, middle, low, high,
                    fastest_with - fastest_bare, goal ? "< " goal : "-", said
            }'
}
on_four_ranks() { launch 4 "$@"; }
not_mpi() { env ${1:+LD_PRELOAD="$1"} /bin/true; }

instructions() { # instructions PRELOAD COMMAND...: of one rank, in millions
    launch 1 "$1" valgrind --tool=callgrind --callgrind-out-file=/dev/null "${@:2}" 2>&1 |
        awk '/Collected/ { printf "%.2f", $NF / 1e6 }'
}
count() { # count WHAT COMMAND...: a row
    local bare with
    bare=$(instructions "" "${@:2}")
    with=$(instructions "$weir" "${@:2}")
    awk -v what="$1" -v bare="$bare" -v with="$with" \
        'BEGIN { printf "%-24s %8.2f %9.2f %7.2f\n", what, bare, with, with - bare }'
}

say_load
echo "milliseconds from start to end"
printf '%-24s %8s %9s %7s  %-16s %13s  %s\n' program bare "with Weir" more "95 % interval" "fastest: more" goal
for mpi in openmpi mpich; do
    use_mpi $mpi startup || continue
    compare "$mpi, 4 ranks, I/O" $goal_ms "$repetitions" on_four_ranks "$work/startup.$mpi" "$work/data"
    compare "$mpi, 4 ranks, no I/O" $goal_ms "$repetitions" on_four_ranks "$work/startup.$mpi"
done
compare "/bin/true" 0 $((20 * repetitions)) not_mpi
say_load
echo
echo "millions of instructions from start to end, one rank (a processor does some thousand million per second)"
for mpi in openmpi mpich; do
    [ -x "$work/startup.$mpi" ] || continue
    use_mpi $mpi startup
    count "$mpi, I/O" "$work/startup.$mpi" "$work/data"
    count "$mpi, no I/O" "$work/startup.$mpi"
done
