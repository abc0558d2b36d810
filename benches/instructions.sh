#!/bin/bash
# Instructions that Weir adds to a call, counted by callgrind: the same on a busy machine as on an idle one.
# What one call costs is the difference between a run with 2,000 and one with 12,000 calls, divided by 10,000.
# With DARSHAN_LIB set to a libdarshan.so, what Darshan adds is counted in the same run.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
weir=${WEIR_LIB:-$here/target/release/libweir.so}
[ -f "$weir" ] || { echo "no $weir: cargo build --release" >&2; exit 1; }
work=$(mktemp -d /dev/shm/weir-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 WEIR_INCLUDE=$work WEIR_DIR=$work DARSHAN_LOGPATH=$work
export DARSHAN_EXCLUDE_DIRS=none

total() { # total MPI PRELOAD OPERATION COUNT: instructions of one run
    local out=$work/callgrind.$RANDOM
    "mpirun.$1" -n 1 env ${2:+LD_PRELOAD=$2} valgrind --tool=callgrind --callgrind-out-file="$out" \
        "$work/calls.$1" "$3" "$4" "$work/data" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    awk '/^(summary|totals):/ { print $2; exit }' "$out"
    rm -f "$out"
}
per_call() { # per_call MPI PRELOAD OPERATION: instructions of one call
    local few many
    few=$(total "$1" "$2" "$3" 2000)
    many=$(total "$1" "$2" "$3" 12000)
    echo $(((many - few) / 10000))
}

printf '%-10s %-14s %8s %10s %8s' MPI call bare "with Weir" added
[ -n "${DARSHAN_LIB:-}" ] && printf ' %14s' "Darshan adds"
printf '\n'
for mpi in openmpi mpich; do
    command -v "mpicc.$mpi" >/dev/null || { echo "$mpi: skipped, no mpicc.$mpi"; continue; }
    "mpicc.$mpi" -O2 -o "$work/calls.$mpi" "$here/benches/calls.c"
    for call in write_at write_at_all pwrite fwrite wait inert; do
        bare=$(per_call $mpi "" $call)
        with=$(per_call $mpi "$weir" $call)
        printf '%-10s %-14s %8d %10d %8d' $mpi $call "$bare" "$with" $((with - bare))
        [ -n "${DARSHAN_LIB:-}" ] && printf ' %14d' $(($(per_call $mpi "$DARSHAN_LIB" $call) - bare))
        printf '\n'
    done
done
