"""Folders with a hand-made installed package of kernels: one op, a device of its own, and variants in Python."""

from __future__ import annotations

from pathlib import Path

PROVIDER = '''
import os
import signal
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from tritmark.harness.measure.clocks import PythonClock
from tritmark.harness.spec import Device, KernelKey, Op, Provider, Tensor, Tier, ToleranceKind, Traffic, Variant

DOUBLE = Op(
    name="double", summary="y = 2 x", source="this file", axes=("n",),
    inputs=(Tensor("x", ("n",), "float32", "any"),), outputs=(Tensor("y", ("n",), "float32", "twice x"),),
    tolerance_kind=ToleranceKind.{family}, input_families=("normal",),
    generate=lambda axes, family, rng: {{"x": rng.standard_normal(axes["n"], dtype=np.float32)}},
    outputs_like=lambda axes, key: {{"y": ((axes["n"],), key.dtype)}},
    reference=lambda inputs, axes, key: {{"y": inputs["x"].astype({exact}) * 2}},
    traffic=lambda axes, key: Traffic(read=4 * axes["n"], written=4 * axes["n"], operations=axes["n"]),
)
LAUNCHES = Path(__file__).with_name("launches")


def spin(ns):
    end = perf_counter_ns() + ns
    while perf_counter_ns() < end:
        pass


class Bound:
    pointer = None
    bad = -1
    threads_used = 1
    ran = ""
    runs = 0

    def __init__(self, inputs, outputs, work):
        self.x, self.y, self.work = inputs["x"], outputs["y"], work

    def run(self):
        np.multiply(self.x, np.float32(2), out=self.y)
        self.work(self.y)
        self.runs += 1


def die(y):
    os.kill(os.getpid(), signal.SIGSEGV)


def die_later(y):
    """A slow kernel that kills every process except the first two, which compare outputs and measure."""
    launches = LAUNCHES.read_text().split() if LAUNCHES.exists() else []
    if str(os.getpid()) not in launches:
        launches.append(str(os.getpid()))
        LAUNCHES.write_text(" ".join(launches))
    if len(launches) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    spin(600_000)


def wrong(y):
    y[3:4] += 1


def off(y):
    y[:] = np.nextafter(y, np.float32(np.inf))


def fail(y):
    raise RuntimeError("no <such> luck")


def where(y, changed):
    """Changes an output if `changed`."""
    if changed:
        y.reshape(-1)[-1] += 1


CALLS = []


def now_and_then(y):
    CALLS.append(1)
    where(y, len(CALLS) % 50 == 0)


def past_the_end(y):
    """Writes one element too many if the size is not a multiple of four."""
    if y.size % 4 == 3:
        np.lib.stride_tricks.as_strided(y, (y.size + 1,), y.strides)[-1] = 7


def variant(name, work):
    key = KernelKey("plain", "double", "none", "float32")
    return Variant(key=key, name=name, tier=Tier.BASELINE, summary=name, bind=lambda i, o, *_: Bound(i, o, work))


DEVICE = Device(type="plain", summary="Python", features=frozenset, clock=PythonClock, ceilings=dict, cores=lambda: 1)
PROVIDER = Provider(ops=(DOUBLE,), variants=({variants}), devices=(DEVICE,))
'''

SUITE = """
title = "one"
[[workloads]]
op = "double"
axes = { n = 100 }
measure = true
"""

BACKEND = '''
"""A PEP 517 backend without dependencies."""
import zipfile
from pathlib import Path

NAME = "gated-1.0-py3-none-any.whl"


def build_wheel(folder, config_settings=None, metadata_directory=None):
    if Path("broken").exists():
        raise SystemExit("the compiler says no")
    info = "gated-1.0.dist-info"
    with zipfile.ZipFile(Path(folder, NAME), "w") as wheel:
        wheel.write("gated.py")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: gated\\nVersion: 1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: 1\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/entry_points.txt", "[tritmark.providers]\\ngated = gated:PROVIDER\\n")
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\\n" for name in (*wheel.namelist(), f"{info}/RECORD")))
    return NAME
'''

PROJECT = (
    '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = '
    '"gated"\nversion = "1.0"\n'
)


def source(family: str = "EXACT", **variants: str) -> str:
    """The source of a provider's module. `variants` maps names to the expression that each runs besides its work."""
    made = "".join(f"variant({name!r}, {work}), " for name, work in variants.items())
    # Only outputs in float32 are compared bit for bit.
    exact = "np.float32" if family == "EXACT" else "np.float64"
    return PROVIDER.format(family=family, variants=made, exact=exact)


def site(folder: Path, text: str) -> Path:
    """A folder with the installed package `gated`, whose source is this text."""
    info = folder / "gated-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "gated.py").write_text(text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gated\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tritmark.providers]\ngated = gated:PROVIDER\n")
    return folder


def suite(folder: Path) -> str:
    """Path of a suite for the package."""
    path = folder / "suite.toml"
    path.write_text(SUITE)
    return str(path)
