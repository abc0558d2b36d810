#!/bin/sh
# What libweir.so exports is interposition or its own C interface, and nothing leaks beside it; every
# MPI function has its PMPI twin; it links no MPI and nothing else but the C library.
set -eu
library=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

symbols_of() { nm -D --defined-only "$1" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u; }

symbols_of "$library" >"$work/ours"
# Ours may be a name of MPI's, of the C library's, or begin with weir_.
# (__isoc23_* are the C library's own, but only of newer ones than this machine may have.)
grep -vE '^(P?MPI_[A-Z]|weir_|__isoc[0-9]+_)' "$work/ours" >"$work/others" || true
for path in $(ldd "$library" | awk '/\/lib/ { print ($2 == "=>" ? $3 : $1) }'); do
    symbols_of "$path"
done | sort -u >"$work/system"
leaked=$(comm -23 "$work/others" "$work/system")
if [ -n "$leaked" ]; then
    echo "symbols: exported, but neither MPI's, the system's nor weir_*:" "$leaked" >&2
    exit 1
fi

grep '^MPI_' "$work/ours" | sed 's/^/P/' | sort >"$work/twins"
missing=$(comm -23 "$work/twins" "$work/ours")
if [ -n "$missing" ]; then
    echo "symbols: without a PMPI twin:" "$missing" >&2
    exit 1
fi

# Whatever it needs is loaded into every process that has it preloaded.
if readelf -d "$library" | grep NEEDED | grep -vE '\[(libc|ld-linux-[a-z0-9-]+)\.so' >&2; then
    echo "symbols: the library must link nothing but the C library" >&2
    exit 1
fi
echo "symbols: $(wc -l <"$work/ours") exported, $(wc -l <"$work/twins") MPI functions with their twins"
