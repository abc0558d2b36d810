#!/bin/bash
# What Weir adds to the life of a program that does next to nothing: four ranks with a little I/O, four
# without any, one alone, and a program that is not MPI at all. Each process is timed from its exec to its
# end, beside it and not around the launcher (benches/lifetime.c); a job lives as long as its longest rank.
#
# Runs alternate; "more" is the median over the pairs of neighbouring runs, beside it the interval that holds
# the true median with 95 % confidence. When the goal lies inside, this run cannot tell: more REPETITIONS or a
# quieter machine can. Others on the machine make a job last longer but not compute more, and one rank has
# nobody to wait for: its time of the processor tells what four ranks' time on the clock cannot. What
# depends on no machine at all comes last: the instructions of one rank from its start to its end.
# shellcheck source=benches/common.sh
. "$(dirname "$0")/common.sh"
repetitions=${REPETITIONS:-31}
goal_ms=5

cc -O2 -o "$work/lifetime" "$root/benches/lifetime.c"
# The least that LD_PRELOAD can cost: a library with nothing in it.
cc -shared -o "$work/nothing.so" -x c /dev/null

run_once() { # run_once FILE RUN PRELOAD COMMAND...: adds the job's time on the clock and a rank's of the processor
    local file=$1
    shift
    rm -f "$work/ranks"
    "$@" >/dev/null
    awk '{ longest = $1 > longest ? $1 : longest; processor += $2 } END { print longest, processor / NR }' \
        "$work/ranks" >>"$file"
}
on_ranks() { # on_ranks N PRELOAD COMMAND...
    local ranks=$1
    shift
    launch "$ranks" "" "$work/lifetime" "$work/ranks" "$@"
}
alone() { "$work/lifetime" "$work/ranks" "$@"; }

row() { # row WHAT COLUMN GOAL: of the times in $work/bare and $work/with
    paste "$work/with" "$work/bare" | awk -v c="$2" '{ print $c - $(c + 2) }' | sort -g |
        awk -v what="$1" -v goal="$3" -v bare="$(cut -d' ' -f"$2" "$work/bare" | median)" \
            -v with="$(cut -d' ' -f"$2" "$work/with" | median)" '
            { more[NR] = $1 }
            END {
                middle = (more[int((NR + 1) / 2)] + more[int(NR / 2) + 1]) / 2
                k = int(NR / 2 - 0.98 * sqrt(NR)) # the sign test: 0.98 sqrt(n) places from the middle
                low = more[k < 1 ? 1 : k]; high = more[k < 1 ? NR : NR + 1 - k]
                said = !goal ? "" : high < goal ? "pass" : low >= goal ? "OVER" : "cannot tell"
                printf "%-36s %8.2f %9.2f %7.2f  %7.2f..%-7.2f  %-5s %s\n", what, bare, with, middle, low, high,
                    goal ? "< " goal : "-", said
            }'
}
compare() { # compare WITHOUT WITH REPETITIONS RUN...: times with two libraries, in turns
    local without=$1 with=$2 runs=$3
    shift 3
    rm -f "$work/bare" "$work/with"
    for i in $(seq 0 "$runs"); do
        ((i % 2)) || run_once "$work/with" "${@/PRELOAD/$with}"
        run_once "$work/bare" "${@/PRELOAD/$without}"
        ((i % 2)) && run_once "$work/with" "${@/PRELOAD/$with}"
        rm -rf "${WEIR_DIR:?}"/*
        ((i)) || rm -f "$work/bare" "$work/with" # the first pair fills caches
    done
}

instructions() { # instructions PRELOAD COMMAND...: of one rank, in millions
    launch 1 "$1" valgrind --tool=callgrind --callgrind-out-file=/dev/null "${@:2}" 2>&1 |
        awk '/Collected/ { printf "%.2f", $NF / 1e6 }'
}
count() { # count WHAT COMMAND...: a row
    local bare with
    bare=$(instructions "" "${@:2}")
    with=$(instructions "$weir" "${@:2}")
    awk -v what="$1" -v bare="$bare" -v with="$with" \
        'BEGIN { printf "%-36s %8.2f %9.2f %7.2f\n", what, bare, with, with - bare }'
}

say_load
printf '%-36s %8s %9s %7s  %-16s  %s\n' "milliseconds from start to end" bare "with Weir" more "95 % interval" goal
for mpi in openmpi mpich; do
    use_mpi $mpi startup || continue
    for io in "I/O" "no I/O"; do
        program=("$work/startup.$mpi")
        [ "$io" = "no I/O" ] || program+=("$work/data")
        compare "" "$weir" "$repetitions" on_ranks 4 PRELOAD "${program[@]}"
        row "$mpi, 4 ranks, $io" 1 $goal_ms
        compare "" "$weir" "$repetitions" on_ranks 1 PRELOAD "${program[@]}"
        row "$mpi, 1 rank, $io, processor" 2 $goal_ms
    done
done
compare "" "$weir" $((20 * repetitions)) alone PRELOAD /bin/true
row "/bin/true" 1 0
compare "$work/nothing.so" "$weir" $((20 * repetitions)) alone PRELOAD /bin/true
row "/bin/true, preloading nothing" 1 0
say_load
echo
echo "millions of instructions from start to end, one rank (a processor does some thousand million per second)"
for mpi in openmpi mpich; do
    [ -x "$work/startup.$mpi" ] || continue
    use_mpi $mpi startup
    count "$mpi, I/O" "$work/startup.$mpi" "$work/data"
    count "$mpi, no I/O" "$work/startup.$mpi"
done
