#!/bin/sh
# Plants each mistake of crates/weir-world/planted in a copy of the sources, and looks whether the simulated world finds it
# within 2,000 seeds, as what its first line says.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
# Not where others look for weir-world: what is built here has a mistake.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/planted"
# Built often, and run for a moment.
export CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=false
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(cd "$root" && tar -cf - --exclude=./target --exclude=./build --exclude=./.git .) | tar -xf - -C "$copy"
cd "$copy"
missed=0
for patch in "$root"/crates/weir-world/planted/*.patch; do
    name=$(basename "$patch" .patch)
    wanted=$(sed -n '1s/^Found as: //p' "$patch")
    patch -sp1 <"$patch"
    cargo build --quiet --package weir-world
    found=$("$CARGO_TARGET_DIR/debug/weir-world" --seeds 0..2000 --expect-failure) || true
    line=$(echo "$found" | grep -F -- "$wanted" | head -n 1)
    if [ -n "$line" ]; then
        echo "planted: $name is found: $line"
    else
        echo "planted: $name is NOT found in 2,000 seeds, or as something else:" "$found" >&2
        missed=1
    fi
    patch -sRp1 <"$patch"
done
exit $missed
