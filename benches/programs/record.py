#!/usr/bin/env python3
"""Run real programs under Weir and keep recordings of their bursts.

    benches/programs/record.py [--times 5] [--keep DIRECTORY] [lammps gromacs openfoam …]

Each program runs a short input of which the number of outputs is known. It prints what Weir found beside that, and with
--keep writes a recording of the bursts of each run, from which `cargo test -p weir-profile --test recordings` replays detection.
Programs that are not installed are left out (Debian: lammps, gromacs, openfoam with openfoam-examples).
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WEIR = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/weir"
RANKS = 2
MPIRUN = ["mpirun", "--oversubscribe", "-n", str(RANKS)]
# With this gap the phases of a profile are the bursts as they were recorded.
BURST_GAP = "1ms"
SKIPPED = 77

LAMMPS = """
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 20 0 20 0 20
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
thermo 10
dump 1 all custom 50 dump.txt id type x y z vx vy vz
dump 2 all atom 50 dump.%.txt
restart 250 state.*.bin
run 600
"""

GROMACS = """
integrator = md
dt = 0.002
nsteps = 2000
nstxout = 100
nstvout = 100
nstenergy = 20
nstlog = 20
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
tcoupl = v-rescale
tc-grps = System
tau-t = 0.1
ref-t = 300
gen-vel = yes
"""

OPENFOAM = {"deltaT": "0.00025", "endTime": "0.1", "writeInterval": "50"}


def run(command, where, **more):
    """Run a command quietly; what it printed is shown if it fails."""
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    environment.setdefault("WM_PROJECT_DIR", "/usr/share/openfoam")
    ran = subprocess.run(command, cwd=where, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if ran.returncode != 0:
        sys.exit(f"record.py: {' '.join(map(str, command))} ended with {ran.returncode}:\n{ran.stdout[-2000:]}")
    return ran.stdout


def weir(command, where, *options):
    """Run a command under Weir and return its output and its profile."""
    for old in where.glob("weir-*.json"):
        old.unlink()
    out = run([WEIR, "run", "--coordinator", "off", *options, "--", *MPIRUN, *command], where)
    profiles = list(where.glob("weir-*.json"))
    if len(profiles) != 1:
        sys.exit(f"record.py: {len(profiles)} profiles instead of one in {where}")
    return out, json.loads(profiles[0].read_text())


class Lammps:
    """13 dumps, at step 0 and every 50 steps; restarts with two of them; a line of thermodynamics every 10 steps."""

    needs = "lmp"
    phases = 13

    def prepare(self, where):
        (where / "in.melt").write_text(LAMMPS)

    def command(self):
        return ["lmp", "-in", "in.melt", "-log", "log.lammps"]

    def period_s(self, where, _out):
        looped = re.search(r"Loop time of ([0-9.]+)", (where / "log.lammps").read_text())
        return float(looped[1]) / 12


class Gromacs:
    """Reads its input, writes 21 frames (steps 0 to 2000) and the state at the end; energies and the log five times as often."""

    needs = "gmx_mpi"
    phases = 23

    def prepare(self, where):
        run(["gmx", "solvate", "-cs", "spc216.gro", "-box", "4", "4", "4", "-o", "box.gro"], where)
        atoms = int((where / "box.gro").read_text().splitlines()[1])
        top = '#include "oplsaa.ff/forcefield.itp"\n#include "oplsaa.ff/spce.itp"\n[ system ]\nwater\n[ molecules ]\n'
        (where / "topol.top").write_text(f"{top}SOL {atoms // 3}\n")
        (where / "md.mdp").write_text(GROMACS)
        run(["gmx", "grompp", "-f", "md.mdp", "-c", "box.gro", "-p", "topol.top", "-o", "md.tpr", "-maxwarn", "2"], where)

    def command(self):
        return ["gmx_mpi", "mdrun", "-s", "md.tpr", "-deffnm", "out", "-ntomp", "1"]

    def period_s(self, where, _out):
        took = re.search(r"^\s+Time:\s+[0-9.]+\s+([0-9.]+)", (where / "out.log").read_text(), re.M)
        return float(took[1]) / 20


class Openfoam:
    """Reads its mesh and fields, and writes its fields at 8 times."""

    needs = "icoFoam"
    phases = 9

    def prepare(self, where):
        examples = Path("/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity")
        shutil.copytree(examples, where, dirs_exist_ok=True)
        for packed in where.rglob("*.gz"):
            run(["gunzip", packed], where)
        mesh = where / "system/blockMeshDict"
        mesh.write_text(mesh.read_text().replace("(20 20 1)", "(90 90 1)"))
        control = where / "system/controlDict"
        text = control.read_text()
        for key, value in OPENFOAM.items():
            text = re.sub(rf"^{key}\s.*;", f"{key} {value};", text, flags=re.M)
        control.write_text(text)
        head = "FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }\n"
        (where / "system/decomposeParDict").write_text(f"{head}numberOfSubdomains {RANKS};\nmethod simple;\nsimpleCoeffs {{ n ({RANKS} 1 1); delta 0.001; }}\n")
        run(["blockMesh"], where)
        run(["decomposePar"], where)

    def command(self):
        return ["icoFoam", "-parallel"]

    def period_s(self, where, _out):
        written_s = sorted(path.stat().st_mtime for path in where.glob("processor0/0.*/U"))
        return (written_s[-1] - written_s[0]) / (len(written_s) - 1)


PROGRAMS = {"lammps": Lammps, "gromacs": Gromacs, "openfoam": Openfoam}


def recording(profile, program, period_s):
    """The bursts of a profile as text, a line for each: start and end in microseconds, bytes read, bytes written."""
    lines = [f"phases {program.phases}", f"period_us {period_s * 1e6:.0f}"]
    for burst in profile["phases"]["list"]:
        start, end = (round(burst[key] * 1e6) for key in ("start_s", "end_s"))
        lines.append(f"{start} {end} {burst['bytes_read']} {burst['bytes_written']}")
    return "\n".join(lines) + "\n"


def show(name, program, period_s, phases):
    """A line of the table."""
    found_s = phases["characteristic_time_s"] or 0
    sure = "irregular" if phases["irregular"] else f"{phases['confidence'] or 0:.2f}"
    print(f"{name:<12}{program.phases:>10}{phases['count']:>7}{period_s:>10.3f}{found_s:>8.3f}{found_s / period_s - 1:>8.1%}{sure:>10}", flush=True)


def keep(name, program, path):
    """Runs the program once more with the gap of bursts and writes the recording."""
    with tempfile.TemporaryDirectory(prefix="weir-programs-") as directory:
        where = Path(directory)
        program.prepare(where)
        out, profile = weir(program.command(), where, "--phase-gap", BURST_GAP)
        text = recording(profile, program, program.period_s(where, out))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    arguments = parser.parse_args()
    unknown = set(arguments.programs) - set(PROGRAMS)
    if unknown:
        parser.error(f"no such program: {', '.join(unknown)}")
    found = [name for name in arguments.programs if shutil.which(PROGRAMS[name].needs)]
    if not found:
        print("none of the programs is installed")
        return SKIPPED
    print(f"{'program':<12}{'asked for':>10}{'found':>7}{'period s':>10}{'found':>8}{'error':>8}{'sure':>10}")
    for name in found:
        program = PROGRAMS[name]()
        for time in range(1, arguments.times + 1):
            with tempfile.TemporaryDirectory(prefix="weir-programs-") as directory:
                where = Path(directory)
                program.prepare(where)
                out, profile = weir(program.command(), where)
                show(name, program, program.period_s(where, out), profile["phases"])
            if arguments.keep:
                keep(name, program, arguments.keep / f"{name}-{time}.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
