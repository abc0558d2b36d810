#!/bin/bash
# What the benchmarks share. To be sourced: sets `root`, `weir` (the library), `work` (a folder on a memory
# file system, removed at the end), and the environment in which everything there is measured.
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
weir=${WEIR_LIB:-${CARGO_TARGET_DIR:-$root/target}/release/libweir.so}
[ -f "$weir" ] || { echo "no $weir: cargo build --release" >&2; exit 1; }
work=$(mktemp -d /dev/shm/weir-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
# A copy, so that a build meanwhile changes nothing; with the command, which is the helper process of a node.
cp "$weir" "$(dirname "$weir")/weir" "$work/"
weir=$work/libweir.so
mkdir "$work/profiles"
export WEIR_INCLUDE=$work WEIR_DIR=$work/profiles
export DARSHAN_LOGPATH=$work/profiles DARSHAN_EXCLUDE_DIRS=none

# use_mpi NAME PROGRAM: makes MPI_EXEC and $work/PROGRAM.NAME; false, saying why, when that MPI is missing.
use_mpi() {
    local settings
    settings=$("$root/scripts/mpi.sh" env "$1" 2>&1) || { echo "$1: skipped, $settings"; return 1; }
    eval "$settings"
    $MPI_CC -O2 -o "$work/$2.$1" "$root/benches/$2.c"
}

# launch RANKS PRELOAD COMMAND...: with the library in the ranks alone; an empty PRELOAD is the bare run.
launch() {
    local ranks=$1 preload=$2
    shift 2
    # shellcheck disable=SC2086 # the launcher comes with options
    $MPI_EXEC -n "$ranks" env ${preload:+LD_PRELOAD=$preload} "$@"
}

# Of the numbers on standard input, a line each: the median, and the quartiles.
median() { quantile 0.5; }
quantile() {
    sort -g | awk -v q="$1" '{ v[NR] = $1 }
        END { at = 1 + q * (NR - 1); low = int(at); print v[low] + (at - low) * (v[low < NR ? low + 1 : NR] - v[low]) }'
}

# verdict VALUE GOAL
verdict() { awk -v value="$1" -v goal="$2" 'BEGIN { print value <= goal ? "pass" : "OVER" }'; }

# Before others on this machine, where that is allowed. Linux weighs groups of processes against each other first
# (sched_autogroup): the weight of our own has to change too, until the end.
before_others() {
    local group=/proc/$$/autogroup
    renice -n -20 -p $$ >/dev/null 2>&1 || return 0
    [ -w $group ] || return 0
    # shellcheck disable=SC2064 # as it is now
    trap "echo $(awk '{ print $NF }' $group) >$group; rm -rf '$work'" EXIT
    echo -20 >$group
}

# On a machine that others use as well, times are worth less: say so beside them.
say_load() { echo "load average $(cut -d' ' -f1-3 /proc/loadavg) on $(nproc) cores"; }
