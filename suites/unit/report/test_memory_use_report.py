"""The report's section on memory: every figure is shown, failures come first, and hostile text is inert."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tritmark.harness.record import MemoryUse, Record, Slope, Status
from tritmark.harness.report import memory

PASSED = MemoryUse(
    status=Status.PASS,
    inputs=4096,
    outputs=1024,
    workspace=512,
    host_peak=8192,
    persistent=96,
    allocated=24,
    page_faults=0.5,
    calls=10_000,
    leak=Slope(median=0.0, low=0.0, high=0.0),
    bits_per_weight=2.03125,
    overhead=0.25,
    floor=2048,
)
FAILED = MemoryUse(
    status=Status.FAIL,
    reason="leaks 16.0 bytes a call <script>alert(1)</script>",
    inputs=2048,
    device_peak=3 << 20,
    calls=60,
    leak=Slope(median=16.0, low=15.9, high=16.1),
    device_leak=Slope(median=256.0, low=255.0, high=257.0),
)


@pytest.fixture(scope="module")
def page(gpu_record: Record) -> str:
    first, second, *others = gpu_record.runs
    runs = (
        first.model_copy(update={"memory": PASSED}),
        second.model_copy(update={"memory": FAILED, "kernel": "cpu/a/b/c/<b>d"}),
        *others,
    )
    # The package's function of that name hides the module.
    building = import_module("tritmark.harness.report.page")
    with pytest.MonkeyPatch.context() as patched:
        if memory.SECTION not in building.SECTIONS:
            patched.setattr(building, "SECTIONS", (*building.SECTIONS, memory.SECTION))
        page: str = building.render(gpu_record.model_copy(update={"runs": runs}))
    return page


def section(page: str) -> str:
    found = re.search(r'<section[^>]*id="memory".*?</section>', page, re.DOTALL)
    assert found is not None
    return found[0]


def text(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", markup).split())


def test_figures_are_shown(page: str) -> None:
    shown = text(section(page))
    assert "4.00 KiB 1.00 KiB 512 B 8.00 KiB 2.00 KiB 0.25x 0 – 10,000 2.03 96.0 B 24.0 B 0.5" in shown
    assert "3.00 MiB" in shown
    assert "16.0 (15.9 to 16.1) 256 (255 to 257)" in shown


def test_failures_come_first_and_text_is_inert(page: str) -> None:
    body = section(page)
    assert body.index("FAIL") < body.index("PASS")
    assert "<script>alert" not in body
    assert "leaks 16.0 bytes a call &lt;script&gt;" in body
    assert "<b>d" not in body


def test_nothing_is_shown_where_nothing_was_judged(gpu_record: Record) -> None:
    left_out = MemoryUse(status=Status.NOT_RUN, reason="not requested")
    runs = tuple(run.model_copy(update={"memory": left_out}) for run in gpu_record.runs)
    assert memory.SECTION.context(gpu_record.model_copy(update={"runs": runs})) is None  # type: ignore[misc]
