"""What the benchmarks of sharing have in common: the storage, the coordinator, and starting jobs."""

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
TESTBED = ROOT / "tests/testbed/testbed.sh"
NOT_POSSIBLE = 77
FILE_BYTES = 16 << 20
STARTED = []

# As an interrupt does: what was made is undone.
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))


def die(message):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {message}")


@contextlib.contextmanager
def workplace():
    """A directory for binaries, sockets and profiles. The library is copied: a build meanwhile changes nothing."""
    for built in ("weir", "libweir.so"):
        if not (TARGET / built).exists():
            die(f"no {TARGET / built}: cargo build --release --workspace")
    with tempfile.TemporaryDirectory(prefix="weir-sharing.", dir="/dev/shm") as name:
        work = pathlib.Path(name)
        for built in ("weir", "libweir.so"):
            shutil.copy(TARGET / built, work)
        yield work


@contextlib.contextmanager
def storage(kind, options):
    """The mount points of a testbed of our own, undone at the end whatever happens."""
    environment = dict(os.environ, WEIR_TESTBED=f"weir-sharing-{os.getpid()}")
    up = subprocess.run([TESTBED, "up", kind, *options], env=environment, stdout=subprocess.PIPE, text=True)
    if up.returncode == NOT_POSSIBLE:
        print("SKIPPED: this benchmark needs storage that cannot be made here", file=sys.stderr)
        sys.exit(NOT_POSSIBLE)
    if up.returncode != 0:
        die("no storage")
    try:
        yield up.stdout.split()
    finally:
        end_jobs()
        subprocess.run([TESTBED, "down"], env=environment, check=True)


def openmpi():
    """The environment of Open MPI, whose waiting ranks yield: two cores have to do for all jobs."""
    script = 'eval "$(scripts/mpi.sh env openmpi)" && env -0'
    out = subprocess.run(["bash", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
    return dict(line.split("=", 1) for line in out.split("\0") if "=" in line)


def build(work, mpi, program):
    binary = work / program
    source = ROOT / "benches/sharing" / f"{program}.c"
    subprocess.run([*shlex.split(mpi["MPI_CC"]), "-O2", "-o", binary, source], env=mpi, check=True)
    return binary


@contextlib.contextmanager
def coordinator(work, policy, *words):
    """The settings with which a job asks a service of that policy (and other options); none at all for `none`."""
    if policy == "none":
        yield {}
        return
    socket = work / "coordinator.sock"
    command = [work / "weir", "coordinator", "--listen", f"unix:{socket}", "--policy", policy, *words]
    service = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if socket.exists():
                break
            time.sleep(0.02)
        else:
            die(f"no coordinator with policy {policy}")
        yield {"WEIR_COORDINATOR": f"unix:{socket}", "LD_PRELOAD": str(work / "libweir.so"), "WEIR_DIR": str(work)}
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait()


def known(work, name, binary, ranks, w_iter_s, mean_phase_bytes):
    """The settings of a job that has run before: its name, and a history that has nothing but it."""
    state = work / f"state-{name}"
    (state / "weir").mkdir(parents=True, exist_ok=True)
    (state / "weir").chmod(0o700)
    habits = {"phases": 100, "w_iter_ns": round(w_iter_s * 1e9), "mean_phase_bytes": round(mean_phase_bytes)}
    (state / "weir" / "history").write_text(json.dumps([name, str(binary), ranks, habits]) + "\n")
    return {"WEIR_APPLICATION": name, "XDG_STATE_HOME": str(state)}


def start(mpi, ranks, settings, command):
    """Starts a job; the settings are for its ranks alone, not for the launcher. No ranks: one, without a launcher."""
    words = ["env", *(f"{name}={value}" for name, value in settings.items())]
    launcher = [*shlex.split(mpi["MPI_EXEC"]), "-n", str(ranks)] if ranks else []
    job = subprocess.Popen([*launcher, *words, *map(str, command)], env=mpi, stdout=subprocess.PIPE, text=True)
    STARTED.append(job)
    return job


def end_jobs():
    """Whoever interrupts a benchmark wants its jobs to end too, and the storage is not undone beneath them."""
    while STARTED:
        job = STARTED.pop()
        if job.poll() is None:
            job.terminate()
            job.wait()


def make_file(path, size=FILE_BYTES):
    with open(path, "wb") as file:
        file.write(bytes(size))


def quantile(values, q):
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def median(values):
    return quantile(values, 0.5)


def say_load():
    with open("/proc/loadavg") as loads:
        print("load average", *loads.read().split()[:3], "on", os.cpu_count(), "cores")
