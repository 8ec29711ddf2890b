"""The installed C++ reference, the planted faults (compiled once), and shared fixtures of the cross-validation
tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritmark.harness.cross import CppLibrary
from tritmark.harness.providers import Installed
from tritmark.harness.record import PeerComparison
from tritmark.harness.spec import Axes, KernelKey, Peer, Variant
from tritmark.harness.validate.compare import expectations
from tritmark.harness.validate.cross import collect, confront, suited
from tritmark.kernels import PROVIDER
from tritmark.kernels.peers import libggml, onnx
from tritmark.kernels.peers.reference import LIBRARY

HERE = Path(__file__).parent
FLAGS = ("-std=c++17", "-O2", "-Wall", "-Werror", "-ffp-contract=off", "-shared", "-fPIC")


@pytest.fixture(scope="session")
def installed() -> Installed:
    return Installed({"builtin": PROVIDER})


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of faults. Skips the test without a C++ compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler: neither g++ nor clang++ is on PATH")
    library = tmp_path_factory.mktemp("cross") / "libfaults.so"
    command = [compiler, *FLAGS, str(HERE / "faults.cpp"), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return library


@pytest.fixture(scope="session")
def references(installed: Installed) -> tuple[Peer, ...]:
    return LIBRARY.peers(installed)


@pytest.fixture(scope="session")
def faults(compiled: Path, installed: Installed) -> Mapping[str, Peer]:
    """The faulty functions, by symbol."""
    peers = CppLibrary(str(compiled), str(HERE / "faults.toml")).peers(installed)
    return {peer.name.rpartition(":")[2]: peer for peer in peers}


@pytest.fixture(scope="session")
def reference_for(references: tuple[Peer, ...]) -> Callable[[KernelKey], Peer]:
    """reference_for(key): the one C++ function for it."""

    def of(key: KernelKey) -> Peer:
        found = suited(references, key)
        assert len(found) == 1, (
            f"{key} has {len(found)} references; write one in reference.cpp of the op and describe it in reference.toml"
        )
        return found[0]

    return of


@pytest.fixture(scope="session")
def timed_for(reference_for: Callable[[KernelKey], Peer]) -> Callable[[KernelKey], Peer]:
    """timed_for(key): the same as a third-party implementation, so its time is compared too."""
    return lambda key: replace(reference_for(key), reference=False)


@pytest.fixture(scope="session")
def compare(installed: Installed) -> Callable[..., PeerComparison]:
    """compare(variant, peer, axes, family, seed=0, logical=None, measure=False): the result of cross-validation."""

    def run(
        variant: Variant,
        peer: Peer,
        axes: Axes,
        family: str = "uniform",
        *,
        seed: int = 0,
        logical: Mapping[str, Any] | None = None,
        measure: bool = False,
        budget_s: float = 0.03,
    ) -> PeerComparison:
        op, key = installed.ops[variant.key.op], variant.key
        inputs = op.generate(axes, family, np.random.default_rng(seed)) if logical is None else logical
        encoded = op.encode(inputs, axes, key.format)
        device = installed.registry.devices[key.device]
        found = collect(
            device, op, variant, peer, inputs, encoded, axes, threads=1, seed=seed, measure=measure, budget_s=budget_s
        )
        expected = expectations(op, axes, key, op.reference(inputs, axes, key))
        return confront(op, key, expected, found, peer=peer, logical=inputs, axes=axes)

    return run


def require(missing: str | None) -> None:
    """Skip the test if a peer is missing, unless TRITMARK_REQUIRE_PEERS is set."""
    if missing is not None and os.environ.get("TRITMARK_REQUIRE_PEERS") == "1":
        pytest.fail(missing)
    if missing is not None:
        pytest.skip(missing)


@pytest.fixture
def ggml() -> None:
    require(libggml.missing())


@pytest.fixture
def ort() -> None:
    require(onnx.missing())


@pytest.fixture
def there() -> Callable[[Peer], None]:
    """there(peer): skip the test if it is missing."""
    return lambda peer: require(peer.missing())
