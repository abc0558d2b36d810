#!/usr/bin/env python3
"""What coordination costs where it has little or nothing to give: jobs that hardly share anything, with Weir and without.

    benches/sharing/harm.py [--list] [--mix NAME,NAME] [--runs N] [--policies weir,set10,fair] [--json FILE]

Each mix runs with no library at all (bare) and under each policy in turns. Jobs are strangers: nothing is known of them from
earlier runs, and each run elects a coordinator of its own. A job's time is by its own clock from the first phase to the last;
the longest call is that of a run, the median over the runs. Of several jobs that are alike the worst one of each run counts.

    baseline   bare; on storage that is limited, the later of bare and of the end under fair sharing
    time       broken if the 95 % interval lies above baseline × 1.03 + 50 ms
    call       broken if above that of bare + 100 ms + the bound of a phase: 1.5 × its fair duration + 50 ms

Exit code 1: a bound is broken under the policy `weir`; 77: no storage can be made here.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from common import build, die, make_file, median, openmpi, quantile, say_load, start, storage, workplace
from fluid import Phases, fair_shares

KIB, MIB = 1 << 10, 1 << 20
RATE_MB_PER_S = 40  # of each target that is limited
BARE, OFF = "bare", "off"  # without the library, and with one that only measures
HEAD_START_S = 0.15  # between the last job's being ready and the start
PATIENCE_S = 180
RESAMPLES = 2000
SLOWER, LATER_S = 1.03, 0.05
CALL_LATER_S = 0.1
FAIR_FACTOR, FAIR_LATER_S = 1.5, 0.05  # of a phase whose size nobody knows beforehand


@dataclass(frozen=True)
class Job:
    """Jobs of one kind, `count` of them, the next `every_s` after the one before. `on` are storages, taken in turns."""

    name: str
    on: tuple
    kind: str = "write"
    ranks: int = 1
    phases: int = 1
    calls: int = 1
    bytes: int = MIB
    pause_s: float = 0.0
    delay_s: float = 0.0
    slow_s: float = 0.0
    is_synced: bool = False
    count: int = 1
    every_s: float = 0.0
    path: str = ""  # of files that jobs share
    stopped_s: tuple = ()  # (from, to): the job is stopped meanwhile

    def delay_of(self, copy):
        return self.delay_s + copy * self.every_s

    def phase_bytes(self):
        return self.ranks * self.calls * self.bytes

    def fluid(self, copy):
        """The same for the simulation of fair sharing."""
        computes_beside = self.kind == "iwrite"
        return Phases(self.delay_of(copy), self.phases, self.phase_bytes(), self.pause_s, self.slow_s, self.on, computes_beside)

    def opens_first(self):
        return self.kind in ("write", "write_all", "read", "read_all", "iwrite")


@dataclass(frozen=True)
class Mix:
    name: str
    what: str
    jobs: tuple
    is_saturated: bool = False  # the jobs want more of the limited storage than it has


SLOW, OTHER, DISK, MEMORY = ("slow",), ("other",), ("disk",), ("memory",)


def periodic(name, on, **more):
    """Ten phases of 2 MiB, 150 ms apart."""
    return Job(name, on, **{"phases": 10, "calls": 2, "pause_s": 0.15, **more})


MIXES = [
    Mix("alone", "a job alone on limited storage", (Job("alone", SLOW, ranks=2, phases=10, calls=2, pause_s=0.1),)),
    Mix("alone-fast", "a job alone, with many small phases", (Job("alone", DISK, phases=400, pause_s=0.003),)),
    Mix(
        "two-storages",
        "a limited disk, another disk and memory: a job each",
        (Job("slow", SLOW, calls=64), periodic("disk", DISK), periodic("memory", MEMORY)),
    ),
    Mix(
        "opposite",
        "two jobs that use two storages in opposite order",
        (Job("forth", SLOW + OTHER, phases=8, calls=8), Job("back", OTHER + SLOW, phases=8, calls=8)),
    ),
    Mix(
        "memory",
        "two jobs at the speed of memory, which nobody shares",
        (Job("one", MEMORY, phases=15, calls=16, pause_s=0.1), Job("other", MEMORY, phases=15, calls=16, pause_s=0.1)),
    ),
    Mix(
        "fast-disk",
        "two jobs on a disk that is faster than they are",
        (Job("one", DISK, phases=15, calls=16, pause_s=0.1), Job("other", DISK, phases=15, calls=16, pause_s=0.1)),
    ),
    Mix(
        "trickle",
        "4 KiB every 4 ms beside ten phases of 2 MiB",
        (Job("trickle", DISK, phases=450, bytes=4 * KIB, pause_s=0.004), periodic("periodic", DISK)),
    ),
    Mix(
        "stream",
        "64 KiB every 4 ms beside ten phases of 2 MiB",
        (Job("stream", DISK, phases=450, bytes=64 * KIB, pause_s=0.004), periodic("periodic", DISK)),
    ),
    Mix(
        "tiny-phases",
        "four jobs of 1,000 × (64 KiB, 3 ms)",
        (Job("tiny", DISK, phases=1000, bytes=64 * KIB, pause_s=0.003, count=4),),
    ),
    Mix(
        "crowd",
        "50 jobs that come and go, each with three phases of 1 MiB",
        (Job("crowd", DISK, ranks=0, phases=3, pause_s=0.05, count=50, every_s=0.05),),
    ),
    Mix(
        "elephant",
        "one phase of 64 MiB beside small periodic ones",
        (Job("elephant", SLOW, calls=64), periodic("periodic", SLOW, calls=1)),
        is_saturated=True,
    ),
    Mix(
        "newcomer",
        "two periodic jobs; another comes with a long read",
        (
            periodic("first", SLOW, calls=1),
            periodic("second", SLOW, calls=1),
            Job("newcomer", SLOW, "read", calls=40, delay_s=0.5),
        ),
        is_saturated=True,
    ),
    Mix(
        "slow-rank",
        "eight ranks of which one is late, beside one rank",
        (
            Job("eight", SLOW, ranks=8, phases=10, bytes=256 * KIB, pause_s=0.1, slow_s=0.06),
            periodic("one", SLOW, calls=1),
        ),
    ),
    Mix(
        "wide",
        "16 ranks beside one rank",
        (Job("wide", SLOW, ranks=16, phases=4, pause_s=0.2), periodic("narrow", SLOW, calls=1)),
        is_saturated=True,
    ),
    Mix(
        "hand-over",
        "two jobs that hand each other files, 100 times",
        (Job("give", DISK, "give", phases=100, path="handed"), Job("take", DISK, "take", phases=100, path="handed")),
    ),
    Mix(
        "suites",
        "the tiny requests of two MPI-IO test suites",
        (Job("suite", DISK, "suite", ranks=2, phases=300, calls=6, count=2),),
    ),
    Mix(
        "metadata",
        "new files, written once and removed, by two jobs",
        (Job("files", DISK, "files", ranks=2, phases=100, calls=4, bytes=16 * KIB, pause_s=0.005, count=2),),
    ),
    Mix(
        "overlap",
        "nonblocking writes behind computing, by two jobs",
        (Job("overlap", SLOW, "iwrite", phases=25, calls=1, pause_s=0.08, count=2),),
    ),
    Mix(
        "reader-writer",
        "a reader beside a writer",
        (
            Job("reader", SLOW, "read", phases=6, calls=4, pause_s=0.15),
            Job("writer", SLOW, phases=6, calls=4, pause_s=0.15),
        ),
    ),
    Mix(
        "collective-read",
        "collective reads beside collective writes",
        (
            Job("reader", SLOW, "read_all", ranks=2, phases=5, calls=2, pause_s=0.15),
            Job("writer", SLOW, "write_all", ranks=2, phases=5, calls=2, pause_s=0.15),
        ),
    ),
    Mix(
        "synced",
        "a sync after every write, beside a periodic job",
        (
            Job("synced", SLOW, phases=15, calls=4, bytes=256 * KIB, pause_s=0.05, is_synced=True),
            periodic("periodic", SLOW, calls=1),
        ),
    ),
    Mix(
        "stopped",
        "a job that is stopped for a second in its phase, beside a periodic one",
        (Job("stopped", SLOW, calls=32, stopped_s=(0.4, 1.4)), periodic("periodic", SLOW, calls=1)),
    ),
]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the mixes and end")
    parser.add_argument("--mix", type=lambda text: text.split(","), help="only these")
    parser.add_argument("--runs", type=int, default=7, help="of each mix, with each policy and bare")
    parser.add_argument(
        "--policies", type=lambda text: text.split(","), default=["weir"], help="weir, set10, fair …; off: measured only"
    )
    parser.add_argument("--json", type=pathlib.Path, help="a file for all that was measured")
    parser.add_argument("--seed", type=int, default=1, help="of the intervals' resampling")
    arguments = parser.parse_args()
    unknown = set(arguments.mix or []) - {mix.name for mix in MIXES}
    if unknown:
        parser.error(f"no mix is called {', '.join(sorted(unknown))}; --list names them")
    return arguments


@dataclass
class Place:
    """Where things are: binaries and sockets, and a directory on each storage."""

    work: pathlib.Path
    mpi: dict
    binary: pathlib.Path
    directories: dict

    def paths(self, job, copy):
        name = job.path or f"{job.name}{copy}"
        return [f"{self.directories[on]}/{name}" for on in job.on]


def make_files(place, mix):
    """What is overwritten or read exists before, so that phases allocate nothing."""
    for job in mix.jobs:
        for copy in range(job.count):
            for path in place.paths(job, copy) if job.opens_first() else []:
                # Whole for a reader, who would find the second half of its phase in memory else.
                whole = max(job.ranks, 1) * job.calls * job.bytes
                make_file(path, whole if job.kind.startswith("read") else min(whole, max(16 * MIB, job.bytes)))


def settings_of(place, run, policy, name):
    """A stranger that takes part in an election."""
    if policy == BARE:
        return {}
    coordinated = {"WEIR_COORDINATOR": f"elect:{run}/coordinator", "WEIR_POLICY": policy}
    return {
        "LD_PRELOAD": place.work / "libweir.so",
        **({"WEIR_COORDINATOR": "off"} if policy == OFF else coordinated),
        "WEIR_DIR": run,
        "WEIR_JOB_ID": name,
        "WEIR_APPLICATION": "harm",
        "XDG_STATE_HOME": run / "state",
    }


def command_of(place, run, job, copy):
    settings = {
        "delay": job.delay_of(copy),
        "phases": job.phases,
        "calls": job.calls,
        "bytes": job.bytes,
        "pause": job.pause_s,
        "slow": job.slow_s,
        "sync": int(job.is_synced),
    }
    words = [f"{name}={value}" for name, value in settings.items()]
    return [place.binary, run / "start", job.kind, *words, *place.paths(job, copy)]


def signal_at(at, pid, which):
    time.sleep(max(at - time.monotonic(), 0))
    os.kill(pid, which)


def run_mix(place, mix, policy):
    """All jobs of the mix at once: for each kind of job what each of its copies printed and what its gate counted."""
    run = pathlib.Path(tempfile.mkdtemp(prefix="run.", dir=place.work))
    (run / "coordinator").mkdir(mode=0o700)
    copies = [(job, copy) for job in mix.jobs for copy in range(job.count)]
    processes = []
    for job, copy in copies:
        name = f"{job.name}{copy}"
        # Launchers that start at the same moment fall over each other in the directory that they share.
        (run / name).mkdir()
        mpi = {**place.mpi, "OMPI_MCA_orte_tmpdir_base": str(run / name)}
        processes.append(start(mpi, job.ranks, settings_of(place, run, policy, name), command_of(place, run, job, copy)))
    pids = [ready(process, f"{job.name} of {mix.name}") for (job, _), process in zip(copies, processes)]
    begin = time.monotonic() + HEAD_START_S
    (run / "early").write_text(f"{begin:.6f}\n")
    (run / "early").rename(run / "start")
    for (job, _), pid in zip(copies, pids):
        for at_s, which in zip(job.stopped_s, (signal.SIGSTOP, signal.SIGCONT)):
            signal_at(begin + at_s, pid, which)
    results = {job.name: [] for job in mix.jobs}
    for (job, copy), process in zip(copies, processes):
        out, _ = process.communicate(timeout=PATIENCE_S)
        if process.returncode != 0:
            die(f"{job.name} of {mix.name} under {policy} ended with {process.returncode}")
        result = printed(out)
        if policy != BARE:
            result["gate"] = at_gate(run / f"weir-harm-{job.name}{copy}.json")
        results[job.name].append(result)
    shutil.rmtree(run)
    return results


def ready(process, what):
    words = process.stdout.readline().split()
    if len(words) != 2 or words[0] != "ready":
        die(f"{what} does not start")
    return int(words[1])


def printed(out):
    words = {word: [float(number) for number in numbers] for word, *numbers in map(str.split, out.splitlines())}
    (begin, end), (call_s,), (_, phase_s) = words["took"], words["call"], words["phase"]
    return {"time_s": end - begin, "call_s": call_s, "phase_s": phase_s}


def at_gate(profile):
    """What the profile says of the gate; nothing if it is not there."""
    try:
        counts = json.loads(profile.read_text())["coordination"]
    except (OSError, ValueError, KeyError):
        return {}
    return {name: counts[name] for name in ("waits", "wait_s", "holds", "backfills", "losses", "opens", "note")}


def measure(place, mix):
    """The results of all runs, by policy, in turns."""
    policies = [BARE, *ARGUMENTS.policies]
    make_files(place, mix)
    results = {policy: [] for policy in policies}
    for number in range(ARGUMENTS.runs):
        for policy in policies if number % 2 == 0 else reversed(policies):
            results[policy].append(run_mix(place, mix, policy))
            longest = {name: max(one["time_s"] for one in all_alike) for name, all_alike in results[policy][-1].items()}
            text = ", ".join(f"{name} {time_s:.2f} s" for name, time_s in longest.items())
            print(f"{mix.name}: run {number + 1}, {policy}: {text}", file=sys.stderr)
    return results


def fair_bounds(mix):
    """By job of a mix that saturates its storage: its time under fair sharing, and the longest of its phases."""
    if not mix.is_saturated:
        return {}
    limited = {name: RATE_MB_PER_S * 1e6 for name in SLOW + OTHER}
    copies = [(job, copy) for job in mix.jobs for copy in range(job.count) if set(job.on) <= set(limited)]
    bounds = {}
    for (job, _), (time_s, phase_s) in zip(copies, fair_shares([job.fluid(copy) for job, copy in copies], limited)):
        stopped_s = job.stopped_s[1] - job.stopped_s[0] if job.stopped_s else 0.0
        before = bounds.get(job.name, (0.0, 0.0))
        bounds[job.name] = (max(before[0], time_s + stopped_s), max(before[1], phase_s))
    return bounds


def worst(runs, name, figure):
    return [max(one[figure] for one in run[name]) for run in runs]


def interval(pairs, figure):
    """95 % of what the figure is of runs drawn anew, pairs of runs together."""
    dice = random.Random(ARGUMENTS.seed)
    values = []
    for _ in range(RESAMPLES):
        drawn = dice.choices(pairs, k=len(pairs))
        values.append(figure([a for a, _ in drawn], [b for _, b in drawn]))
    return quantile(values, 0.025), quantile(values, 0.975)


def judge(mix, results):
    """A row per job and policy."""
    fair = fair_bounds(mix)
    rows = []
    for job in mix.jobs:
        fair_s, fair_phase_s = fair.get(job.name, (0.0, None))
        bare_s = worst(results[BARE], job.name, "time_s")
        baseline_s = [max(time_s, fair_s) for time_s in bare_s]
        bare_call_s = median(worst(results[BARE], job.name, "call_s"))
        if fair_phase_s is None:
            fair_phase_s = median([median([one["phase_s"] for one in run[job.name]]) for run in results[BARE]])
        call_limit_s = bare_call_s + CALL_LATER_S + FAIR_FACTOR * fair_phase_s + FAIR_LATER_S
        for policy in ARGUMENTS.policies:
            with_s = worst(results[policy], job.name, "time_s")
            call_s = median(worst(results[policy], job.name, "call_s"))
            pairs = list(zip(baseline_s, with_s))
            over_s = interval(pairs, lambda a, b: median(b) - SLOWER * median(a) - LATER_S)
            broken = ["time"] * (over_s[0] > 0) + ["call"] * (call_s > call_limit_s)
            gates = [sum(one["gate"].get("wait_s", 0) for one in run[job.name]) for run in results[policy]]
            rows.append({
                "mix": mix.name,
                "job": job.name if job.count == 1 else f"{job.name}, worst of {job.count}",
                "policy": policy,
                "bare_s": median(bare_s),
                "fair_s": fair_s or None,
                "time_s": median(with_s),
                "ratio": median(with_s) / median(baseline_s),
                "ratio_interval": interval(pairs, lambda a, b: median(b) / median(a)),
                "difference_s": median(with_s) - median(baseline_s),
                "difference_interval_s": interval(pairs, lambda a, b: median(b) - median(a)),
                "bare_call_s": bare_call_s,
                "call_s": call_s,
                "call_limit_s": call_limit_s,
                "waited_s": median(gates),
                "broken": broken,
            })  # fmt: skip
    return rows


HEADER = (
    f"{'mix':<16} {'job':<20} {'policy':<6} {'bare s':>7} {'fair s':>7} {'ratio':>6} {'95 %':<13}"
    f" {'ms more':>7} {'95 %':<14} {'longest call ms: bare':>22} {'with':>6} {'limit':>6} {'waited s':>8}"
)


def line_of(row):
    low, high = row["ratio_interval"]
    less, more = (1e3 * value for value in row["difference_interval_s"])
    fair = f"{row['fair_s']:7.2f}" if row["fair_s"] else f"{'':7}"
    verdict = "BROKEN: " + ", ".join(row["broken"]) if row["broken"] else "holds"
    return (
        f"{row['mix']:<16} {row['job']:<20} {row['policy']:<6} {row['bare_s']:7.2f} {fair} {row['ratio']:6.3f}"
        f" {f'{low:.3f}-{high:.3f}':<13} {1e3 * row['difference_s']:7.0f} {f'{less:.0f} to {more:.0f}':<14}"
        f" {1e3 * row['bare_call_s']:22.0f} {1e3 * row['call_s']:6.0f} {1e3 * row['call_limit_s']:6.0f}"
        f" {row['waited_s']:8.2f}  {verdict}"
    )


@contextlib.contextmanager
def places():
    """The storages, and all that runs need."""
    with workplace() as work, storage("quick", ["-t", "2", "-r", str(RATE_MB_PER_S), "-s", "256"]) as mounts:
        with tempfile.TemporaryDirectory(prefix="weir-harm.", dir="/var/tmp") as disk:
            directories = {"slow": mounts[0], "other": mounts[1], "disk": disk, "memory": work / "memory"}
            (work / "memory").mkdir()
            mpi = openmpi()
            yield Place(work, mpi, build(work, mpi, "harm"), directories)


def main():
    if ARGUMENTS.list:
        for mix in MIXES:
            print(f"{mix.name:<16} {mix.what}")
        return 0
    rows, measured = [], {}
    with places() as place:
        say_load()
        print(HEADER, flush=True)
        for mix in MIXES:
            if ARGUMENTS.mix and mix.name not in ARGUMENTS.mix:
                continue
            measured[mix.name] = measure(place, mix)
            for row in judge(mix, measured[mix.name]):
                rows.append(row)
                print(line_of(row), flush=True)
        say_load()
    if ARGUMENTS.json:
        ARGUMENTS.json.write_text(json.dumps({"rows": rows, "runs": measured}, indent=1) + "\n")
    broken = [row for row in rows if row["broken"] and row["policy"] == "weir"]
    print(f"{len(broken)} of {sum(row['policy'] == 'weir' for row in rows)} rows broken under weir")
    return 1 if broken else 0


if __name__ == "__main__":
    ARGUMENTS = parse_arguments()
    sys.exit(main())
