#!/bin/sh
# Runs every benchmark there is: the cost of the library, then the engine's.
set -eu
cd "$(dirname "$0")/.."
for bench in instructions time startup memory gate; do
    echo "== benches/$bench.sh, $(date +%T)"
    "benches/$bench.sh"
    echo
done
# The benchmarks alone: without a name it also lists every unit test.
cargo bench -p weir-engine --bench '*'
crates/weir-engine/benches/instructions.sh || [ $? = 77 ]
cargo bench -p weir-coord --bench '*'
# Node files merged from a cold cache.
cargo bench -p weir-profile --bench nodes
