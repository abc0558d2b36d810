#!/bin/sh
# The checkpointing stencil of examples/c on four ranks, under Weir, with Debian's Open MPI and MPICH, or with the MPI
# on PATH where there is neither; then the report of what its I/O was like.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
weir=$target/release/weir

mpis=
for mpi in openmpi mpich; do
    if command -v mpicc.$mpi >/dev/null 2>&1; then mpis="$mpis $mpi"; fi
done
for mpi in ${mpis:-path}; do
    folder=$root/build/demo/$mpi
    rm -rf "$folder"
    mkdir -p "$folder"
    (
        settings=$("$root/scripts/mpi.sh" env "$mpi")
        eval "$settings"
        $MPI_CC -O2 -o "$folder/heat" "$root/examples/c/heat.c"
        cd "$folder"
        echo "== $mpi: weir run -- $MPI_EXEC -n 4 ./heat -n 1024 -s 400 -i 50"
        # shellcheck disable=SC2086 # the launcher comes with options
        "$weir" run --report -- $MPI_EXEC -n 4 ./heat -n 1024 -s 400 -i 50
    )
done
