#!/bin/sh
# What libweir.so exports is interposition or its own C interface, and nothing leaks beside it.
# It links libc and friends, and no MPI.
set -eu
library=$1

exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sed 's/@.*//')
strange=$(echo "$exported" | grep -vE '^(P?MPI_[A-Z]|weir_)' | while read -r name; do
    # Any other name must be one that libc defines too.
    printf '%s\n' "$name"
done | sort >/tmp/weir-symbols.$$
libc=$(ldd "$library" | awk '/libc\.so/ { print $3 }')
nm -D --defined-only "$libc" | awk '{ print $3 }' | sed 's/@.*//' | sort -u |
    comm -23 /tmp/weir-symbols.$$ - ; rm -f /tmp/weir-symbols.$$)
if [ -n "$strange" ]; then
    echo "symbols: exported, but neither MPI, libc nor weir_*:" >&2
    echo "$strange" >&2
    exit 1
fi

if readelf -d "$library" | grep NEEDED | grep -i mpi; then
    echo "symbols: the library must link no MPI" >&2
    exit 1
fi

# Each MPI_File_* has its PMPI_ twin.
for name in $(echo "$exported" | grep '^MPI_'); do
    echo "$exported" | grep -qx "P$name" || { echo "symbols: P$name is missing" >&2; exit 1; }
done
echo "symbols: $(echo "$exported" | wc -l) exported"
