#!/bin/bash
# What Weir adds to the life of a program that does next to nothing: four ranks with a little I/O, four
# without any, one alone, and a program that is not MPI at all. Each process is timed from its exec to its
# end, beside it and not around the launcher (benches/lifetime.c); a job lives as long as its longest rank.
#
# Runs alternate. "More" is the Hodges-Lehmann estimate over the pairs of neighbouring runs, beside it its 99 %
# interval (Wilcoxon's signed ranks). Pairs are run until the interval lies on one side of the goal, PAIRS (60) at least and
# MOST_PAIRS (150) at most: four ranks on fewer cores wait for each other in fits and starts that are larger than what there
# is to see. One rank has nobody to wait for: its time tells sooner, and its time of the processor even on a machine
# that others use. What depends on no machine at all comes last: the instructions of one rank.
# shellcheck source=benches/common.sh
. "$(dirname "$0")/common.sh"
pairs=${PAIRS:-60}
most_pairs=${MOST_PAIRS:-150}
goal_ms=5
# A rank without a launcher: Open MPI would start one behind our back.
export OMPI_MCA_ess_singleton_isolated=1
# Before others on this machine, where that is allowed.
renice -n -20 -p $$ >/dev/null 2>&1 || true

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
four_ranks() { launch 4 "" "$work/lifetime" "$work/ranks" "$@"; }
alone() { "$work/lifetime" "$work/ranks" "$@"; }

# estimate COLUMN: "bare with more low high" of the times in $work/bare and $work/with
estimate() {
    local differences
    differences=$(paste "$work/with" "$work/bare" | awk -v c="$1" '{ print $c - $(c + 2) }')
    echo "$(cut -d' ' -f"$1" "$work/bare" | median) $(cut -d' ' -f"$1" "$work/with" | median)" \
        "$(awk '{ d[NR] = $1; for (i = 1; i <= NR; i++) print (d[i] + $1) / 2 }' <<<"$differences" | sort -g |
            awk -v n="$(wc -l <<<"$differences")" '{ mean[NR] = $1 }
                END {
                    k = int(n * (n + 1) / 4 - 2.58 * sqrt(n * (n + 1) * (2 * n + 1) / 24))
                    if (k < 1) k = 1
                    print (mean[int((NR + 1) / 2)] + mean[int(NR / 2) + 1]) / 2, mean[k], mean[NR + 1 - k]
                }')"
}
row() { # row WHAT COLUMN GOAL
    estimate "$2" | awk -v what="$1" -v goal="$3" -v pairs="$(wc -l <"$work/bare")" '{
        said = !goal ? "" : $5 < goal ? "pass" : $4 >= goal ? "OVER" : "cannot tell"
        printf "%-36s %8.2f %9.2f %7.2f  %7.2f..%-7.2f %5d  %-5s %s\n", what, $1, $2, $3, $4, $5, pairs,
            goal ? "< " goal : "-", said
    }'
}
decided() { estimate "$1" | awk -v goal="$2" '{ exit !($5 < goal || $4 >= goal) }'; }

pair() { # pair N WITHOUT WITH RUN...: once with each library, in turns which comes first
    local n=$1 without=$2 with=$3
    shift 3
    ((n % 2)) || run_once "$work/with" "${@/PRELOAD/$with}"
    run_once "$work/bare" "${@/PRELOAD/$without}"
    ((n % 2)) && run_once "$work/with" "${@/PRELOAD/$with}"
    rm -rf "${WEIR_DIR:?}"/*
}
compare() { # compare COLUMN GOAL WITHOUT WITH RUN...: pairs until that column's estimate is decided
    local column=$1 goal=$2
    shift 2
    pair 0 "$@" # fills caches
    rm -f "$work/bare" "$work/with"
    for i in $(seq "$most_pairs"); do
        pair "$i" "$@"
        if ((i >= pairs && i % 20 == 0)) && decided "$column" "$goal"; then break; fi
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
printf '%-36s %8s %9s %7s  %-16s %5s  %s\n' "milliseconds from start to end" bare "with Weir" more "99 % interval" pairs goal
for mpi in openmpi mpich; do
    use_mpi $mpi startup || continue
    for io in "I/O" "no I/O"; do
        program=("$work/startup.$mpi")
        [ "$io" = "no I/O" ] || program+=("$work/data")
        compare 1 $goal_ms "" "$weir" four_ranks PRELOAD "${program[@]}"
        row "$mpi, 4 ranks, $io" 1 $goal_ms
        compare 1 $goal_ms "" "$weir" alone PRELOAD "${program[@]}"
        row "$mpi, 1 rank, $io" 1 $goal_ms
        row "$mpi, 1 rank, $io, processor" 2 $goal_ms
    done
done
pairs=400 most_pairs=400
compare 1 $goal_ms "" "$weir" alone PRELOAD /bin/true
row "/bin/true" 1 0
compare 1 $goal_ms "$work/nothing.so" "$weir" alone PRELOAD /bin/true
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
