#!/bin/bash
# Instructions that Weir adds to a call, counted by callgrind: the same on a busy machine as on an idle one.
# Only what happens below `measured` in calls.c is counted: not start-up, not what other threads do.
# With DARSHAN_LIB set to a libdarshan.so, what Darshan adds is counted in the same run.
# shellcheck source=benches/common.sh
. "$(dirname "$0")/common.sh"
count=51200 # a multiple of the 1,024 calls of a block
# Whether free() tries to give memory back depends on how the heap happens to lie: 56 instructions more or
# less per call of Open MPI, with Weir or without. Here it never tries.
export MALLOC_TRIM_THRESHOLD_=$((1 << 30))

# How many instructions malloc and free take within MPI depends on that as well: a library that leaves a few blocks in the
# heap adds 22 to a call of Open MPI, in _int_free. Weir has a heap of its own; that this helps is seen in several heaps, of
# which the one with the most instructions counts for Weir and the one with the fewest for the bare call.
pads="0 4096 40000"

per_call() { # per_call MPI PRELOAD OPERATION: instructions of one call
    for pad in $pads; do
        BENCH_PAD=$pad once "$@"
    done | sort -g | if [ -n "$2" ]; then tail -n 1; else head -n 1; fi
}
once() {
    local out=$work/callgrind.out
    launch 1 "$2" valgrind --tool=callgrind --collect-atstart=no --toggle-collect=measured \
        --callgrind-out-file="$out" "$work/calls.$1" "$count" "$work" "$3" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; exit 1; }
    awk -v n=$count '/^(summary|totals):/ { printf "%.1f\n", $2 / n; exit }' "$out"
    rm -f "$out"
}
added() { awk -v bare="$1" -v with="$2" 'BEGIN { printf "%.1f", with - bare }'; }

declare -A goal=([write_at]=200 [write_at_all]=200 [pwrite]=100 [fwrite]=135 [wait]=10 [inert]=6)
declare -A known=([write_at]=393-404 [write_at_all]=398 [pwrite]=204 [fwrite]=271)

printf '%-8s %-13s %8s %10s %7s %6s %8s' MPI call bare "with Weir" added "goal" ""
printf '  %s\n' "${DARSHAN_LIB:+Darshan adds, here; }Darshan 3.5 adds (reference)"
for mpi in openmpi mpich; do
    use_mpi $mpi calls || continue
    for call in write_at write_at_all pwrite fwrite wait inert; do
        bare=$(per_call $mpi "" $call)
        with=$(per_call $mpi "$weir" $call)
        more=$(added "$bare" "$with")
        printf '%-8s %-13s %8s %10s %7s %6s %8s' $mpi $call "$bare" "$with" "$more" "<=${goal[$call]}" \
            "$(verdict "$more" "${goal[$call]}")"
        [ -z "${DARSHAN_LIB:-}" ] || printf '  %s;' "$(added "$bare" "$(per_call $mpi "$DARSHAN_LIB" $call)")"
        printf '  %s\n' "${known[$call]:--}"
    done
done
