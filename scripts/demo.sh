#!/bin/sh
# The checkpointing stencil of examples/c on four ranks, under Weir, with the system's Open MPI and
# MPICH; then the report of what its I/O was like.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
weir=$target/release/weir

for mpi in openmpi mpich; do
    folder=$root/build/demo/$mpi
    rm -rf "$folder"
    mkdir -p "$folder"
    (
        settings=$("$root/scripts/mpi.sh" env $mpi) || exit 0
        eval "$settings"
        $MPI_CC -O2 -o "$folder/heat" "$root/examples/c/heat.c"
        cd "$folder"
        echo "== $mpi: weir run -- $MPI_EXEC -n 4 ./heat -n 1024 -s 400 -i 50"
        # shellcheck disable=SC2086 # the launcher comes with options
        "$weir" run --report -- $MPI_EXEC -n 4 ./heat -n 1024 -s 400 -i 50
    )
done
