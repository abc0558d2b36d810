#!/usr/bin/env python3
"""What coordination is worth: an IO-SETS mix of jobs on limited storage, under each policy and under none.

    benches/sharing/mix.py [--repetitions N] [--policies LIST] [--load OMEGA] [--storage quick|gluster] ...

Each repetition draws a mix as the paper does (section 4): characteristic times around those of its class, I/O ratios that
add up to the load. Each of its jobs runs alone first; then all run together, under one policy after the other, the same
mix each time. Measured is a window that begins when all have started and ends before any ends:

    utilization  eq. (6): compute done, over jobs times window
    stretch      eq. (7): the largest, over the jobs, of window over effective work: compute done, and bytes moved as
                 the time they take the job alone
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import time
from collections import namedtuple
from common import build, coordinator, die, known, make_file, median, openmpi, quantile, say_load, start, storage
from common import workplace

MIB = 1 << 20
RANKS = 2
LAUNCH_SECONDS = 5  # nine jobs on two idle cores need about two
Class = namedtuple("Class", "name count w_iter_s request_bytes")
Job = namedtuple("Job", "name file first_s compute_s volume_bytes request_bytes")
# What a job did within a window.
Work = namedtuple("Work", "compute_s moved_bytes phase_s")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--policies", default="none,weir,set10,fair,exclusive", help="the first is compared with")
    parser.add_argument("--storage", choices=("quick", "gluster"), default="quick")
    parser.add_argument("--rate", type=int, default=60, help="MB/s of the storage")
    parser.add_argument("--load", type=float, default=1.0, help="sum of the I/O ratios, ω of eq. (3)")
    parser.add_argument("--high", type=int, default=2, help="jobs of high frequency, and so on")
    parser.add_argument("--medium", type=int, default=2)
    parser.add_argument("--low", type=int, default=5)
    parser.add_argument("--times", default="2,5,10", help="characteristic times of the three classes, in seconds")
    parser.add_argument("--requests", default="1,2,4", help="MiB a rank writes per call, of the three classes")
    parser.add_argument("--begin", type=float, default=7, help="seconds after the start that the window begins")
    parser.add_argument("--window", type=float, default=20, help="its length in seconds")
    parser.add_argument("--phase-gap", help="WEIR_PHASE_GAP for the jobs [default: as learnt]")
    parser.add_argument("--seed", type=int, default=1, help="of the first repetition")
    parser.add_argument("--strangers", action="store_true", help="nothing is known of the jobs from earlier runs")
    parser.add_argument("--predict", action="store_true", help="also what `weir simulate sharing --live` says of each mix")
    parser.add_argument("--log", type=pathlib.Path, help="directory for what every job printed")
    arguments = parser.parse_args()
    arguments.policies = arguments.policies.split(",")
    return arguments


def classes(arguments):
    times = [float(t) for t in arguments.times.split(",")]
    requests = [int(r) * MIB for r in arguments.requests.split(",")]
    counts = (arguments.high, arguments.medium, arguments.low)
    if len(times) != 3 or len(requests) != 3:
        die("--times and --requests want three values")
    return [Class(*row) for row in zip(("high", "medium", "low"), counts, times, requests)]


def draw_mix(arguments, mount, seed):
    """Section 4: w_iter normal around its class, I/O ratios uniform and scaled to the load; starts anywhere in a period."""
    dice = random.Random(seed)
    drawn = []
    for kind in classes(arguments):
        for index in range(kind.count):
            w_iter_s = max(dice.gauss(kind.w_iter_s, kind.w_iter_s / 10), kind.w_iter_s / 2)
            drawn.append((f"{kind.name}{index}", w_iter_s, dice.uniform(0.5, 1.5), kind.request_bytes))
    scale = arguments.load / sum(ratio for _, _, ratio, _ in drawn)
    jobs = []
    for name, w_iter_s, ratio, request_bytes in drawn:
        ratio = min(ratio * scale, 0.9)
        call_bytes = RANKS * request_bytes
        volume_bytes = max(round(ratio * w_iter_s * arguments.rate * 1e6 / call_bytes), 1) * call_bytes
        first_s = dice.uniform(0, w_iter_s)
        jobs.append(Job(name, f"{mount}/{name}", first_s, (1 - ratio) * w_iter_s, volume_bytes, request_bytes))
    return jobs


def command(job, binary, begin, end):
    times = [f"{t:.6f}" for t in (begin, end, job.first_s, job.compute_s)]
    return [binary, job.file, *times, job.volume_bytes, job.request_bytes]


def lines_of(process, what):
    """What the job printed, as (word, number, number)."""
    out, _ = process.communicate()
    if process.returncode != 0:
        die(f"{what} ended with {process.returncode}")
    return [(word, float(a), float(b)) for word, a, b in (line.split() for line in out.splitlines())]


def alone_s(mpi, job, binary):
    """How long the job's phase takes when nobody else is there: the median of three after a first."""
    pause_s = 0.4
    begin = time.monotonic() + 1
    end = begin + 4 * (pause_s + 1.2 * job.volume_bytes / 1e6 / ARGUMENTS.rate) + 0.3
    quiet = job._replace(first_s=0, compute_s=pause_s)
    lines = lines_of(start(mpi, RANKS, {}, command(quiet, binary, begin, end)), f"{job.name} alone")
    phases = [b - a for word, a, b in lines if word == "phase" and b < end]
    if len(phases) < 3:
        die(f"{job.name} alone: the storage is slower than it should be")
    return median(phases[1:])


def overlap(begin, end, window):
    return max(min(end, window[1]) - max(begin, window[0]), 0.0)


def moved_until(lines, at):
    """Bytes moved at a time, even within a request."""
    before = (0.0, 0.0)
    for word, a, b in lines:
        if word == "compute":
            before = (b, before[1])
        elif word == "moved":
            if a > at:
                part = (at - before[0]) / (a - before[0])
                return before[1] + max(part, 0.0) * (b - before[1])
            before = (a, b)
    return before[1]


def work_in(lines, window):
    compute_s = sum(overlap(a, b, window) for word, a, b in lines if word == "compute")
    moved_bytes = moved_until(lines, window[1]) - moved_until(lines, window[0])
    return Work(compute_s, moved_bytes, [b - a for word, a, b in lines if word == "phase"])


def settings_of(work, job, binary, alone_io_s):
    """A job that has run before, alone, unless it is to be a stranger."""
    if ARGUMENTS.strangers:
        return {"WEIR_APPLICATION": f"{job.name}-{time.monotonic_ns()}", "XDG_STATE_HOME": str(work / "history")}
    return known(work, job.name, binary, RANKS, job.compute_s + alone_io_s, job.volume_bytes)


def predict(work, jobs, alone):
    """What the simulation of the same jobs says, by policy: utilization and stretch."""
    window = [ARGUMENTS.begin, ARGUMENTS.begin + ARGUMENTS.window]
    described = []
    for job, io_s in zip(jobs, alone):
        phases = [["compute", job.first_s], ["bytes", job.volume_bytes]]
        phases += int(window[1] / job.compute_s + 1) * [["compute", job.compute_s], ["bytes", job.volume_bytes]]
        # One rank of a node writes for all in a collective call.
        about = {"name": job.name, "phases": phases, "request": RANKS * job.request_bytes}
        if not ARGUMENTS.strangers:
            about["w_iter"] = job.compute_s + io_s
        described.append(about)
    # The bandwidth that the jobs see when they are alone.
    bandwidth = median([job.volume_bytes / io_s for job, io_s in zip(jobs, alone)])
    scenario = {"bandwidth": bandwidth, "window": window, "jobs": described}
    command = [work / "weir", "simulate", "sharing", "-", "--live", "--json", "--policy", ",".join(ARGUMENTS.policies)]
    out = subprocess.run(command, input=json.dumps(scenario), stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(out)["policies"]


def run_mix(work, mpi, binary, jobs, alone, policy):
    """All jobs at once under a policy: what each did within the window."""
    with coordinator(work, policy) as settings:
        begin = time.monotonic() + LAUNCH_SECONDS
        window = (begin + ARGUMENTS.begin, begin + ARGUMENTS.begin + ARGUMENTS.window)
        processes = []
        for job, io_s in zip(jobs, alone):
            mine = settings_of(work, job, binary, io_s) if settings else {}
            if settings and ARGUMENTS.phase_gap:
                mine["WEIR_PHASE_GAP"] = ARGUMENTS.phase_gap
            processes.append(start(mpi, RANKS, {**settings, **mine}, command(job, binary, begin, window[1] + 0.1)))
        printed = [lines_of(process, f"{job.name} under {policy}") for job, process in zip(jobs, processes)]
    if ARGUMENTS.log:
        for job, lines in zip(jobs, printed):
            text = "".join(f"{word} {a - begin:.6f} {b if word == 'moved' else b - begin:.6f}\n" for word, a, b in lines)
            (ARGUMENTS.log / f"{policy}.{job.name}").write_text(text)
    return [work_in(lines, window) for lines in printed]


def judge(jobs, alone, works):
    """The figures of one run, by name."""
    length_s = ARGUMENTS.window
    slowdowns = {}
    for job, job_alone_s, work in zip(jobs, alone, works):
        effective_s = work.compute_s + work.moved_bytes / job.volume_bytes * job_alone_s
        slowdowns[job.name] = length_s / max(effective_s, 1e-9)
    return {
        "utilization": sum(work.compute_s for work in works) / len(works) / length_s,
        "stretch": max(slowdowns.values()),
        "MB/s": sum(work.moved_bytes for work in works) / length_s / 1e6,
        **slowdowns,
    }


def print_table(results):
    """A row per figure, a column per policy: the median over the repetitions (quartiles), and the median of its ratio
    to the first policy, taken within each repetition."""
    first = ARGUMENTS.policies[0]
    print(f"\n{'':<12}" + "".join(f" | {policy:<26}" for policy in ARGUMENTS.policies))
    for figure in results[first][0]:
        cells = []
        for policy in ARGUMENTS.policies:
            values = [result[figure] for result in results[policy]]
            ratios = [value / reference[figure] for value, reference in zip(values, results[first])]
            spread = f"({quantile(values, 0.25):.2f}-{quantile(values, 0.75):.2f})"
            cells.append(f"{median(values):6.3f} {spread:<13} ×{median(ratios):<5.3f}")
        print(f"{figure:<12}" + "".join(f" | {cell}" for cell in cells))


def main():
    results = {policy: [] for policy in ARGUMENTS.policies}
    options = ["-t", "1", "-r", str(ARGUMENTS.rate)]
    with workplace() as work, storage(ARGUMENTS.storage, options) as mounts:
        mpi = openmpi()
        binary = build(work, mpi, "job")
        say_load()
        for seed in range(ARGUMENTS.seed, ARGUMENTS.seed + ARGUMENTS.repetitions):
            jobs = draw_mix(ARGUMENTS, mounts[0], seed)
            for job in jobs:
                make_file(job.file)
            alone = [alone_s(mpi, job, binary) for job in jobs]
            load = sum(io_s / (io_s + job.compute_s) for job, io_s in zip(jobs, alone))
            print(f"seed {seed}: measured load {load:.2f};", end=" ")
            print(", ".join(f"{job.name} {job.compute_s:.1f}+{io_s:.2f} s" for job, io_s in zip(jobs, alone)))
            predicted = predict(work, jobs, alone) if ARGUMENTS.predict else {}
            for policy in ARGUMENTS.policies:
                judged = judge(jobs, alone, run_mix(work, mpi, binary, jobs, alone, policy))
                results[policy].append(judged)
                print(f"  {policy:<10}", " ".join(f"{name} {value:.3f}" for name, value in judged.items()), flush=True)
                for name in ("utilization", "stretch") if predicted else ():
                    value = predicted[policy][name]
                    print(f"  {'':<10} predicted {name} {value:.3f}, measured ×{judged[name] / value:.3f} of it", flush=True)
        print_table(results)
        say_load()


if __name__ == "__main__":
    ARGUMENTS = parse_arguments()
    sys.exit(main())
