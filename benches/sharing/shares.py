#!/usr/bin/env python3
"""Whether jobs that do nothing but I/O get their shares, and whether shares cost anything, on limited storage.

    benches/sharing/shares.py [shares] [alone] [idle] [--seconds N] [--repetitions N]

    shares   2 to 16 jobs, equal shares (policy fair) and powers of ten (set10, by the characteristic time in their
             history): the largest deviation of any job from its share over any two seconds. A request is not divided,
             so what a single one makes of those two seconds stands beside it
    alone    one job, with and without Weir in turns: the ratio of its throughput
    idle     two jobs of which one writes little and may write much: what both move, with and without Weir in turns. (What
             the other moves alone says nothing: without Weir it may take what the modest one asks for.)
"""

import argparse
import time
from collections import namedtuple
from common import FILE_BYTES, build, coordinator, die, known, make_file, median, openmpi, quantile, say_load, start
from common import storage, workplace

KIB, MIB = 1 << 10, 1 << 20
WINDOW_S = 2.0
STEP_S = 0.1
SETTLE_S = 2.0  # until all have begun, and the lead of the tokens is that of this storage
ENDLESS = 1 << 50
Case = namedtuple("Case", "policy orders request_bytes rate")
Writer = namedtuple("Writer", "request_bytes order pause_s", defaults=(0, 0.0))

# The rate is one at which the storage, not the processor, limits requests of that size.
CASES = [
    Case("fair", [0] * 2, 4 * KIB, 1),
    Case("fair", [0] * 2, MIB, 100),
    Case("fair", [0] * 4, 64 * KIB, 15),
    Case("fair", [0] * 4, MIB, 100),
    Case("fair", [0] * 16, 4 * KIB, 1),
    Case("fair", [0] * 16, 256 * KIB, 60),
    Case("fair", [0] * 2, 256 * MIB, 120),
    Case("set10", [0, 1], 4 * KIB, 1),
    Case("set10", [0, 1], 256 * KIB, 60),
    Case("set10", [0, 1], 16 * MIB, 120),
    Case("set10", [0, 2], 4 * KIB, 1),
    Case("set10", [0, 2], 64 * KIB, 15),
    Case("set10", [0, 1, 2], 64 * KIB, 15),
    Case("set10", [0, 1, 2, 3], 16 * KIB, 4),
]


def run(work, mpi, binary, mount, policy, writers, seconds):
    """All at once: for each, what it had moved at every step since the common start."""
    files = [f"{mount}/writer{index}" for index in range(len(writers))]
    for file, writer in zip(files, writers):
        make_file(file, max(writer.request_bytes, min(256 * writer.request_bytes, FILE_BYTES)))
    with coordinator(work, policy) as settings:
        begin = time.monotonic() + 1.5 + 0.25 * len(writers)
        processes = []
        for index, (file, writer) in enumerate(zip(files, writers)):
            mine = known(work, f"writer{index}", binary, 1, 10.0**writer.order, 1 << 30) if settings else {}
            command = [binary, file, begin, begin + seconds, 0, 0, ENDLESS, writer.request_bytes, writer.pause_s]
            processes.append(start(mpi, 1, {**settings, **mine}, command))
        outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        die(f"a job under {policy} failed")
    return [history(output, begin, seconds) for output in outputs]


def history(output, begin, seconds):
    """Bytes moved at every step, even within a request: one of 256 MiB takes longer than the windows' steps."""
    events = [(0.0, 0.0)]
    for line in output.splitlines():
        word, a, b = line.split()
        if word == "moved":
            events.append((float(a) - begin, float(b)))
    moved, index = [], 0
    for step in range(int(seconds / STEP_S) + 1):
        at = step * STEP_S
        while index + 1 < len(events) and events[index + 1][0] <= at:
            index += 1
        (t0, b0), (t1, b1) = events[index], events[min(index + 1, len(events) - 1)]
        moved.append(b0 + (b1 - b0) * (at - t0) / (t1 - t0) if t1 > t0 else b0)
    return moved


def rate_mb_per_s(moved):
    """After it has settled."""
    first = int(SETTLE_S / STEP_S)
    return (moved[-1] - moved[first]) / ((len(moved) - 1 - first) * STEP_S) / 1e6


def deviations(histories, weights, request_bytes):
    """Over all windows and jobs: the worst relative deviation, the same beyond one request, and what one request makes."""
    window, first = int(WINDOW_S / STEP_S), int(SETTLE_S / STEP_S)
    worst = beyond = granule = 0.0
    for begin in range(first, len(histories[0]) - window):
        moved = [h[begin + window] - h[begin] for h in histories]
        for mine, weight in zip(moved, weights):
            due = sum(moved) * weight / sum(weights)
            worst = max(worst, abs(mine - due) / due)
            beyond = max(beyond, (abs(mine - due) - request_bytes) / due)
            granule = max(granule, request_bytes / due)
    return worst, beyond, granule


def measure_shares(work, mpi, binary):
    print("shares: any job over any 2 s; goal: within 5 % and one request")
    print(f"{'policy':<6} {'jobs':>4} {'shares':>7} {'KiB':>7} {'MB/s':>6} {'worst':>8} {'1 request':>9} {'beyond it':>9}")
    for case in CASES:
        seconds = ARGUMENTS.seconds if case.request_bytes < 64 * MIB else 4 * ARGUMENTS.seconds
        with storage("quick", ["-r", str(case.rate), "-s", "1024"]) as mounts:
            writers = [Writer(case.request_bytes, order) for order in case.orders]
            histories = run(work, mpi, binary, mounts[0], case.policy, writers, seconds)
        weights = [10.0**-order for order in case.orders]
        worst, beyond, granule = deviations(histories, weights, case.request_bytes)
        total = sum(rate_mb_per_s(moved) for moved in histories)
        print(
            f"{case.policy:<6} {len(case.orders):>4} {round(max(weights) / min(weights)):>5}:1 {case.request_bytes // KIB:>7}"
            f" {total:6.1f} {100 * worst:6.1f} % {100 * granule:7.1f} % {max(100 * beyond, 0):7.1f} %"
            f"  {'pass' if beyond <= 0.05 else 'OVER'}",
            flush=True,
        )


def compare(work, mpi, binary, mount, what, writers, policies):
    """What the writers move together under each policy, in turns, as a ratio to that under the first policy."""
    rates = {policy: [] for policy in policies}
    for _ in range(ARGUMENTS.repetitions):
        for policy in policies:
            histories = run(work, mpi, binary, mount, policy, writers, ARGUMENTS.seconds)
            rates[policy].append(sum(rate_mb_per_s(moved) for moved in histories))
    for policy in policies[1:]:
        ratios = [with_weir / without for with_weir, without in zip(rates[policy], rates[policies[0]])]
        print(
            f"{what:<34} {policy:<6} {median(rates[policies[0]]):8.2f} {median(rates[policy]):8.2f} {median(ratios):7.3f}"
            f"  {quantile(ratios, 0.25):.3f}-{quantile(ratios, 0.75):.3f}  {'pass' if median(ratios) >= 0.98 else 'BELOW'}",
            flush=True,
        )


def measure_alone(work, mpi, binary):
    print("alone: one job; goal: 0.98")
    print(f"{'requests':<34} {'policy':<6} {'bare':>8} {'MB/s':>8} {'ratio':>7}  quartiles")
    for request_bytes, rate in ((4 * KIB, 1), (64 * KIB, 15), (MIB, 100), (16 * MIB, 100)):
        with storage("quick", ["-r", str(rate)]) as mounts:
            what = f"{request_bytes // KIB} KiB at {rate} MB/s"
            compare(work, mpi, binary, mounts[0], what, [Writer(request_bytes)], ["none", "weir", "set10"])


def measure_idle(work, mpi, binary):
    """The modest one's set10 share is a hundred times the other's."""
    print("idle: a job and one that uses little of its share, together; goal: 0.98")
    print(f"{'the other writes':<34} {'policy':<6} {'bare':>8} {'MB/s':>8} {'ratio':>7}  quartiles")
    with storage("quick", ["-r", "60"]) as mounts:
        for modest in (Writer(64 * KIB, 0, 0.005), Writer(256 * KIB, 0, 0.05), Writer(MIB, 0, 0.2)):
            what = f"{modest.request_bytes // KIB} KiB, then pauses {1000 * modest.pause_s:.0f} ms"
            writers = [Writer(MIB, 2), modest]
            compare(work, mpi, binary, mounts[0], what, writers, ["none", "fair", "set10", "weir"])


def main():
    measures = {"shares": measure_shares, "alone": measure_alone, "idle": measure_idle}
    with workplace() as work:
        mpi = openmpi()
        binary = build(work, mpi, "job")
        say_load()
        for name in ARGUMENTS.what or measures:
            measures[name](work, mpi, binary)
            print()
        say_load()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="shares, alone, idle; all if none is named")
    parser.add_argument("--seconds", type=float, default=10, help="how long jobs write")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    if not set(arguments.what) <= {"shares", "alone", "idle"}:
        parser.error("what: shares, alone, idle")
    return arguments


if __name__ == "__main__":
    ARGUMENTS = parse_arguments()
    main()
