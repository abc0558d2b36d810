#!/usr/bin/env python3
"""What an order of readers is worth: jobs that read collectively from several storage targets under the policy fair, with
one order after the other.

    benches/sharing/reads.py [--jobs 2,4] [--targets 2,4] [--orders nio,sio,hio,slack] [--repetitions N] …

Each job has a file on every target and reads one after the other, with pauses between; a job's call is at one target at a
time, for files lie on one target each here. Ratios are to the first order in the same repetition: of the mean time of a
collective read, and of the time until the last job has read everything.
"""

import argparse
import json
import random
import subprocess
import time
from common import build, coordinator, die, median, openmpi, quantile, say_load, start, storage, workplace

MIB = 1 << 20
RANKS = 2
PERIOD = bytes(1 + i % 251 for i in range(251 * 1024))


def make_files(mounts, jobs, size):
    data = (PERIOD * (size // len(PERIOD) + 1))[:size]
    files = [[f"{mount}/in{job}" for mount in mounts] for job in range(jobs)]
    for path in sum(files, []):
        with open(path, "wb") as file:
            file.write(data)
    return files


def run(work, mpi, binary, files, order, pauses):
    """Mean time of a collective read, the makespan, and how many turns were asked for and waited for, in s."""
    profiles = work / "profiles"
    profiles.mkdir(exist_ok=True)
    for old in profiles.iterdir():
        old.unlink()
    with coordinator(work, "fair", "--order", order) as settings:
        begin = time.monotonic() + 1 + 0.3 * len(files)
        jobs = []
        for index, (paths, pause) in enumerate(zip(files, pauses)):
            # Each begins at another target.
            mine = paths[index % len(paths) :] + paths[: index % len(paths)]
            settings = {**settings, "WEIR_DIR": str(profiles), "WEIR_JOB_ID": f"reader{index}"}
            jobs.append(start(mpi, RANKS, settings, [binary, begin, ARGUMENTS.calls, pause, *mine]))
        outputs = [job.communicate()[0] for job in jobs]
    if any(job.returncode != 0 for job in jobs):
        die(f"a job under {order} failed")
    calls = [tuple(map(float, line.split()[1:])) for out in outputs for line in out.splitlines() if line.startswith("read")]
    turns = wait_s = 0
    for profile in profiles.iterdir():
        report = subprocess.run([work / "weir", "report", "--json", profile], stdout=subprocess.PIPE, check=True).stdout
        at_gate = json.loads(report)["coordination"]
        turns, wait_s = turns + at_gate["turns"], wait_s + at_gate["turn_wait_s"]
    mean = sum(end - begin for begin, end in calls) / len(calls)
    return mean, max(end for _, end in calls) - begin, turns, wait_s


def measure(work, mpi, binary, jobs, targets):
    orders = ARGUMENTS.orders
    results = {order: [] for order in orders}
    options = ["-t", str(targets), "-r", str(ARGUMENTS.rate), "-s", str(jobs * ARGUMENTS.mib + 64)]
    with storage("quick", options) as mounts:
        files = make_files(mounts, jobs, ARGUMENTS.mib * MIB)
        for repetition in range(ARGUMENTS.repetitions):
            dice = random.Random(repetition)
            pauses = [round(ARGUMENTS.pause * dice.uniform(0.5, 1.5), 3) for _ in range(jobs)]
            for order in orders[repetition % len(orders) :] + orders[: repetition % len(orders)]:
                results[order].append(run(work, mpi, binary, files, order, pauses))
    for order in orders:
        ratios = [
            [mine[which] / base[which] for mine, base in zip(results[order], results[orders[0]])] for which in (0, 1)
        ]
        means = [result[0] for result in results[order]]
        turns, wait_s = sum(r[2] for r in results[order]), sum(r[3] for r in results[order])
        print(
            f"{jobs:>4} {targets:>7} {order:<6} {median(means):8.3f} s"
            f" {median(ratios[0]):7.3f} ({quantile(ratios[0], 0.25):.3f}-{quantile(ratios[0], 0.75):.3f})"
            f" {median(ratios[1]):7.3f} ({quantile(ratios[1], 0.25):.3f}-{quantile(ratios[1], 0.75):.3f})"
            f" {turns:>6} {wait_s:7.1f} s",
            flush=True,
        )


def main():
    with workplace() as work:
        mpi = openmpi()
        binary = build(work, mpi, "reader")
        say_load()
        print(f"{'jobs':>4} {'targets':>7} {'order':<6} {'a read':>10} {'ratio':>7} {'quartiles':>13} {'makespan':>7} {'quartiles':>13}  turns, waited")
        for jobs in ARGUMENTS.jobs:
            for targets in ARGUMENTS.targets:
                measure(work, mpi, binary, jobs, targets)
        say_load()


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=numbers, default=[2, 4])
    parser.add_argument("--targets", type=numbers, default=[2, 4])
    parser.add_argument("--orders", type=lambda text: text.split(","), default=["nio", "sio", "hio", "slack"])
    parser.add_argument("--calls", type=int, default=8, help="collective reads of a job")
    parser.add_argument("--mib", type=int, default=16, help="of a file")
    parser.add_argument("--rate", type=int, default=25, help="MB/s of a target")
    parser.add_argument("--pause", type=float, default=0.3, help="mean pause between two reads, in s")
    parser.add_argument("--repetitions", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    ARGUMENTS = parse_arguments()
    main()
