#!/bin/sh
# Runs every benchmark there is: the cost per call of the library, then the engine's.
set -eu
cd "$(dirname "$0")/.."
for script in benches/*.sh; do
    [ -e "$script" ] || continue
    echo "== $script"
    "$script"
done
cargo bench -p weir-engine
