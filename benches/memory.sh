#!/bin/bash
# Memory that Weir adds to a rank with 1,000 files, and what stays bounded: memory, record and profile with
# 100,000 files and with 10 million calls; what is dropped is counted in the profile.
# shellcheck source=benches/common.sh
. "$(dirname "$0")/common.sh"
repetitions=${REPETITIONS:-3}
goal_kib=4096

figures() { # figures PRELOAD MPI ARGUMENTS...: medians of resident, proportional and peak, in KiB
    local out=$work/figures
    : >"$out"
    for _ in $(seq "$repetitions"); do
        rm -rf "${WEIR_DIR:?}"/* "${WEIR_DIR:?}"/.weir-*
        launch 1 "$1" "$work/memory.$2" "${@:3}" "$work" >>"$out"
    done
    for column in 1 2 3; do cut -d' ' -f$column "$out" | median; done | paste -sd' '
}
in_profile() { # what the profile of the last run says, and how large it is
    python3 - "$WEIR_DIR"/weir-*.json <<'END'
import json, os, sys
profile = json.load(open(sys.argv[1]))
modules = profile["modules"]
calls = modules["POSIX"]["counters"]["POSIX_WRITES"] + modules["STDIO"]["counters"]["STDIO_WRITES"]
print(f'{len(profile["files"])} files listed, {profile["dropped"]["files"]} dropped, '
      f'{calls} writes, {os.path.getsize(sys.argv[1]) / 1024:.0f} KiB')
END
}
row() { # row MPI KIND FILES CALLS
    local bare with more said=""
    read -r -a bare <<<"$(figures "" "$@")"
    read -r -a with <<<"$(figures "$weir" "$@")"
    more=("$((with[0] - bare[0]))" "$((with[1] - bare[1]))" "$((with[2] - bare[2]))")
    [ "$3" != 1000 ] || said="< $goal_kib $(verdict "${more[0]}" $goal_kib)"
    printf '%-8s %-6s %7d %9d %9d %9d %9d %9d  %-12s %s\n' "$@" "${bare[0]}" "${more[@]}" "$said" "$(in_profile)"
}

printf '%-8s %-6s %7s %9s %9s %9s %9s %9s  %-12s %s\n' MPI by files "calls per" "bare Rss" "Rss more" "Pss more" \
    "peak more" "goal (Rss)" "profile (memory in KiB)"
for mpi in openmpi mpich; do
    use_mpi $mpi memory || continue
    for kind in posix mpiio stdio; do row $mpi $kind 1000 1; done
    row $mpi posix 1 1
    repetitions=1 row $mpi posix 100000 1
    repetitions=1 row $mpi posix 1 10000000
done
