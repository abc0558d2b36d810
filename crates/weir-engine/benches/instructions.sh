#!/bin/bash
# instructions.sh [ROW...]: instructions per step of the engine by number of jobs, counted by callgrind, and how many
# times more with the most jobs than with the fewest. The rows are those of `cargo bench --bench engine`.
set -euo pipefail
cd "$(dirname "$0")/.."
counts=(60 1000 10000 100000)
(($#)) || set -- "(records)" exclusive fair set10 roundrobin mindilation maxsyseff minmax weir
command -v valgrind >/dev/null || { echo "valgrind is not installed"; exit 77; }
bench=$(cargo bench --quiet --bench engine --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
out=$(mktemp)
trap 'rm -f "$out"' EXIT

per_step() { # per_step ROW JOBS
    local steps
    steps=$(WEIR_BENCH_JOBS=$2 valgrind --tool=callgrind --collect-atstart=no --toggle-collect='engine::measured*' \
        --callgrind-out-file="$out" "$bench" "$1" 2>/dev/null)
    awk -v steps="$steps" '/^(summary|totals):/ { printf "%.0f\n", $2 / steps; exit }' "$out"
}

printf '%-12s' policy
printf '%8s' "${counts[@]}" growth
echo "  (log n: $(awk -v few="${counts[0]}" -v many="${counts[-1]}" 'BEGIN { printf "%.1f", log(many) / log(few) }'))"
for row in "$@"; do
    printf '%-12s' "$row"
    for jobs in "${counts[@]}"; do
        cost=$(per_step "$row" "$jobs")
        [ "$jobs" = "${counts[0]}" ] && few=$cost
        printf '%8s' "$cost"
    done
    awk -v few="$few" -v many="$cost" 'BEGIN { printf "%8.1f\n", many / few }'
done
