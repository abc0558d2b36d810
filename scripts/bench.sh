#!/bin/sh
# Runs every benchmark there is: the cost of the library, then the engine's.
set -eu
cd "$(dirname "$0")/.."
for bench in instructions time startup memory gate; do
    echo "== benches/$bench.sh"
    "benches/$bench.sh"
    echo
done
cargo bench -p weir-engine
crates/weir-engine/benches/instructions.sh || [ $? = 77 ]
cargo bench -p weir-coord
