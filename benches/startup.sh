#!/bin/bash
# What Weir adds to the life of a program that does next to nothing: four ranks with a little I/O, four
# without any, four that coordinate as under `weir run`, one alone, and a program that is not MPI at all. Each
# process is timed from its exec to its end, beside it and not around the launcher (benches/lifetime.c); a job
# lives as long as its longest rank.
#
# Runs alternate, and so do the rows: a round has a pair of runs for each. "More" is the Hodges-Lehmann estimate
# over the pairs, beside it its 99 % interval (Wilcoxon's signed ranks). A row ends when the interval lies on one
# side of the goal, all end after LIMIT (420) seconds: four ranks on fewer cores, above all of an MPI that never
# yields (MPICH), wait for each other in fits and starts that are larger than what there is to see. A rank per core
# waits less and a single rank for nobody: their times tell sooner, and a rank's time of the processor even on a
# machine that others use. What depends on no machine at all comes last: the instructions of one rank.
# ROWS='openmpi, 4 ranks*' has only those whose names are like that.
# shellcheck source=benches/common.sh
. "$(dirname "$0")/common.sh"
limit_s=${LIMIT:-420}
cores=$(nproc)
goal_ms=5
# A row is looked at every five rounds from the 15th on.
fewest_rounds=15
# A rank without a launcher: Open MPI would start one behind our back.
export OMPI_MCA_ess_singleton_isolated=1
# Shared memory alone: looking for networks takes longer and varies more than all there is to see.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=^tcp,openib,ofi,uct,usnic UCX_TLS=self,posix,sysv
before_others

cc -O2 -o "$work/lifetime" "$root/benches/lifetime.c"
# The least that LD_PRELOAD can cost: a library with nothing in it.
cc -shared -o "$work/nothing.so" -x c /dev/null
# Where the coordinating rows meet: nobody else's jobs, and nothing of theirs is remembered.
export XDG_STATE_HOME=$work/state
mkdir -m 700 "$work/meeting"

# The rows: what each is called, what it may add (0: no goal), pairs in a round, libraries without and with, how it runs.
names=() goals=() batches=() withouts=() withs=() runs=()
add_row() { # add_row NAME GOAL BATCH WITHOUT WITH RUN...: RUN gets the library to preload in place of PRELOAD
    # shellcheck disable=SC2053 # a pattern
    [[ $1 == ${ROWS:-*} ]] || return 0
    names+=("$1") goals+=("$2") batches+=("$3") withouts+=("$4") withs+=("$5")
    runs+=("$(printf '%q ' "${@:6}")")
}
declare -A settings
# with_mpi MPI COMMAND...: in a shell of its own, for what suits one MPI may hurt the other
with_mpi() (
    eval "${settings[$1]}"
    "${@:2}"
)
ranks() { launch "$1" "" "$work/lifetime" "$work/ranks" "${@:2}"; } # ranks HOW_MANY PRELOAD COMMAND...
coordinating() { WEIR_COORDINATOR=elect:$work/meeting ranks "$@"; }
alone() { "$work/lifetime" "$work/ranks" "$@"; }

run_once() { # run_once FILE PRELOAD RUN: adds the job's time on the clock and a rank's of the processor
    rm -f "$work/ranks"
    eval "${3/PRELOAD/\"\$2\"}" >/dev/null
    awk '{ longest = $1 > longest ? $1 : longest; processor += $2 } END { print longest, processor / NR }' \
        "$work/ranks" >>"$1"
}
pair() { # pair ROW NUMBER: once with each library, in turns which comes first
    local i=$1
    (($2 % 2)) || run_once "$work/$i.with" "${withs[i]}" "${runs[i]}"
    run_once "$work/$i.bare" "${withouts[i]}" "${runs[i]}"
    (($2 % 2)) && run_once "$work/$i.with" "${withs[i]}" "${runs[i]}"
    rm -rf "${WEIR_DIR:?}"/*
}

estimate() { # estimate ROW COLUMN: "bare with more low high"
    local differences
    differences=$(paste "$work/$1.with" "$work/$1.bare" | awk -v c="$2" '{ print $c - $(c + 2) }')
    echo "$(cut -d' ' -f"$2" "$work/$1.bare" | median) $(cut -d' ' -f"$2" "$work/$1.with" | median)" \
        "$(awk '{ d[NR] = $1; for (i = 1; i <= NR; i++) print (d[i] + $1) / 2 }' <<<"$differences" | sort -g |
            awk -v n="$(wc -l <<<"$differences")" '{ mean[NR] = $1 }
                END {
                    k = int(n * (n + 1) / 4 - 2.58 * sqrt(n * (n + 1) * (2 * n + 1) / 24))
                    if (k < 1) k = 1
                    print (mean[int((NR + 1) / 2)] + mean[int(NR / 2) + 1]) / 2, mean[k], mean[NR + 1 - k]
                }')"
}
decided() { estimate "$1" 1 | awk -v goal="${goals[$1]}" '{ exit !(goal && ($5 < goal || $4 >= goal)) }'; }
print_row() {
    echo "$(estimate "$1" 1) $(estimate "$1" 2)" |
        awk -v what="${names[$1]}" -v goal="${goals[$1]}" -v pairs="$(wc -l <"$work/$1.bare")" '{
            said = !goal ? "" : $5 < goal ? "pass" : $4 >= goal ? "OVER" : "cannot tell"
            printf "%-36s %8.2f %9.2f %7.2f  %7.2f..%-7.2f %7.2f  %6.2f..%-6.2f %5d  %-5s %s\n",
                what, $1, $2, $3, $4, $5, $8, $9, $10, pairs, goal ? "< " goal : "-", said
        }'
}

for mpi in openmpi mpich; do
    (use_mpi $mpi startup) || continue
    settings[$mpi]=$("$root/scripts/mpi.sh" env $mpi)
    program=$work/startup.$mpi data=$work/data
    add_row "$mpi, 4 ranks, I/O" $goal_ms 1 "" "$weir" with_mpi $mpi ranks 4 PRELOAD "$program" "$data"
    add_row "$mpi, 4 ranks, no I/O" $goal_ms 1 "" "$weir" with_mpi $mpi ranks 4 PRELOAD "$program"
    ((cores >= 4)) || add_row "$mpi, a rank per core, I/O" 0 1 "" "$weir" with_mpi $mpi ranks "$cores" PRELOAD "$program" "$data"
    add_row "$mpi, 4 ranks, coordinated I/O" 0 1 "" "$weir" with_mpi $mpi coordinating 4 PRELOAD "$program" "$data"
    add_row "$mpi, 1 rank, I/O" $goal_ms 1 "" "$weir" with_mpi $mpi alone PRELOAD "$program" "$data"
    add_row "$mpi, 1 rank, no I/O" $goal_ms 1 "" "$weir" with_mpi $mpi alone PRELOAD "$program"
done
add_row "/bin/true" 0 10 "" "$weir" alone PRELOAD /bin/true
add_row "/bin/true, preloading nothing" 0 10 "$work/nothing.so" "$weir" alone PRELOAD /bin/true

say_load
printf '%-36s %8s %9s %7s  %-16s %7s  %-14s %5s  %s\n' "milliseconds from start to end" bare "with Weir" more \
    "99 % interval" processor "of a rank" pairs goal
for i in "${!names[@]}"; do
    pair "$i" 0 # fills caches
    rm -f "$work/$i.bare" "$work/$i.with"
done
running=("${!names[@]}")
start_s=$SECONDS
for ((round = 1; SECONDS - start_s < limit_s; round++)); do
    for i in "${running[@]}"; do
        for ((n = 0; n < batches[i]; n++)); do pair "$i" $((round + n)); done
    done
    ((round >= fewest_rounds && round % 5 == 0)) || continue
    undecided=() goals_left=0
    for i in "${running[@]}"; do
        if decided "$i"; then print_row "$i"; else
            undecided+=("$i")
            ((!goals[i])) || goals_left=$((goals_left + 1))
        fi
    done
    running=("${undecided[@]}")
    ((goals_left)) || break
    echo "  … round $round, $((SECONDS - start_s)) s of at most $limit_s: $goals_left rows to decide" >&2
done
for i in "${running[@]}"; do print_row "$i"; done
say_load

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
echo
echo "millions of instructions from start to end, one rank (a processor does some thousand million per second)"
for mpi in "${!settings[@]}"; do
    with_mpi "$mpi" count "$mpi, I/O" "$work/startup.$mpi" "$work/data"
    with_mpi "$mpi" count "$mpi, no I/O" "$work/startup.$mpi"
done
