"""What every suite shares: hypothesis profiles, and the instruction sets that can be tested here."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from earlier_builds import module
from hypothesis import HealthCheck, settings

from tritmark.harness import providers
from tritmark.harness.machine import gpu

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

cpu = module("tritmark.kernels.native.cpu", "tritmark.kernels.cpu")
# Deadlines measure the machine, not the code; the numbers of examples are per property.
_COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
QUICK = 60
settings.register_profile("few", max_examples=QUICK // 5, **_COMMON)
settings.register_profile("quick", max_examples=QUICK, **_COMMON)
settings.register_profile("full", max_examples=300, **_COMMON)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample",
        type=int,
        default=1,
        metavar="N",
        help="of a test's parameters only the first and each N-th, except of exploits",
    )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> CudaContext:
    """The CUDA context: the GPU where there is one, or else the simulator."""
    from tritmark.kernels.cuda.context import SELECT, cuda_context

    if gpu.why_not() is not None:
        monkeypatch.setenv(SELECT, "simulator")
    return cuda_context()


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> CudaContext:
    """The CUDA context in the simulator, whatever there is."""
    from tritmark.kernels.cuda.context import SELECT, cuda_context

    monkeypatch.setenv(SELECT, "simulator")
    return cuda_context()


@pytest.fixture(scope="module", autouse=True)
def registry_kept() -> Iterator[None]:
    """A kernel that a module leaves in the registry changes what later tests select and print."""
    before = _registered(providers._LOADED)
    yield
    after = _registered(providers._LOADED)
    if after and not before:  # this module was the first to call a kernel
        before = _registered([providers.load()])
    assert after <= before, f"left in the registry: {', '.join(sorted(after - before))}"


def _registered(loaded: Sequence[providers.Installed]) -> set[str]:
    """The kernels in the registry, without those of numbered devices; none before the first call."""
    return {each.id for found in loaded for each in found.registry.variants if ":" not in each.id}


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark what concerns CUDA, and what takes each instruction set by itself; of what is selected take a sample if one
    was requested.

    Where TRITMARK_FORCE_ISA names an instruction set that this CPU lacks, nothing can be tested; say so.
    """
    for item in items:
        if item.path.name.startswith(("test_cuda", "test_simulator")):
            item.add_marker("cuda")
        if "isa" in getattr(item, "fixturenames", ()):
            item.add_marker("isa")
    isa = os.environ.get(cpu.FORCE)
    if isa and not cpu.ISAS[isa].features <= cpu.features():
        lacking = ", ".join(sorted(cpu.ISAS[isa].features - cpu.features()))
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"{cpu.FORCE}={isa}, and this CPU lacks {lacking}"))
    yield
    every = config.getoption("--sample")
    if every > 1:
        taken = sampled(items, every)
        config.hook.pytest_deselected(items=[item for item in items if item not in taken])
        items[:] = [item for item in items if item in taken]


def sampled(items: Sequence[pytest.Item], every: int) -> set[pytest.Item]:
    """Of each test with several parameters the first and each `every`-th after it, and all exploits: each is a cheat of
    its own, and their table says which ones are nightly."""
    seen = Counter[str]()
    taken = set[pytest.Item]()
    for item in items:
        test = item.nodeid.partition("[")[0]
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if not seen[test] % every or "exploit" in parameters:
            taken.add(item)
        seen[test] += 1
    return taken


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`isa`: every instruction set that this CPU and the op have, one test each. The op is that of the test's name,
    or of its file's."""
    if "isa" in metafunc.fixturenames:
        names = [
            name.removeprefix("test_")
            for name in (metafunc.function.__name__, metafunc.module.__name__.rpartition(".")[2])
        ]
        # An op without a table of its own has a name that begins with that of its table.
        op = next((name for name in names if name in cpu.KERNELS), None) or max(
            (table for table in cpu.KERNELS if names[-1].startswith(table)), key=len
        )
        metafunc.parametrize("isa", [isa.name for isa in cpu.KERNELS[op] if isa.features <= cpu.features()])
