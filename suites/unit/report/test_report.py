"""The report: one valid, inert, self-contained page for any Record, made quickly and reproducibly."""

from __future__ import annotations

import json
import random
import re
import shlex
import subprocess
import time
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from made_up_records import HOSTILE, MARKS, OPS, clean_runs, full_record, record_of, small_record

from tritmark.harness.errors import RecordError
from tritmark.harness.record import (
    MemoryUse,
    Ratio,
    Record,
    Status,
)
from tritmark.harness.report import build
from tritmark.harness.report.page import SECTIONS, render
from tritmark.harness.text.commands import of_layers, of_report, of_run
from tritmark.harness.text.units import fraction, number, percent, rate, size
from tritmark.harness.text.units import time as duration
from tritmark.harness.text.visible import label, quoted, visible


@pytest.fixture(scope="module")
def record() -> Record:
    return full_record()


@pytest.fixture(scope="module")
def small() -> Record:
    return small_record()


@pytest.fixture(scope="module")
def page(record: Record) -> str:
    return render(record)


class Page(HTMLParser):
    """A strict parser: each tag is closed, in order. It collects what the tests inspect."""

    VOID = frozenset({"meta", "link", "br", "wbr"})

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.parents: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        found = dict(attrs)
        self.tags.append((tag, found))
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> is out of place"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"style", "script"}:
            self.text.append(data)
            self.parents.append(self.open[-1] if self.open else "")

    def around(self, word: str) -> set[str]:
        """The elements that contain this word."""
        return {parent for parent, text in zip(self.parents, self.text, strict=True) if word in text}

    @property
    def words(self) -> str:
        return " ".join(self.text)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


_NOT_THERE = {
    *("access", "next", "baseline", "cross", "peers", "memory"),
    *("gpu", "graph", "threads", "code", "history", "models"),
}
"""Sections that the Record of these tests does not have; test_report_sections.py tests them."""


def test_page_is_valid_and_in_order(page: str) -> None:
    read = Page(page)
    assert len(read.ids) == len(set(read.ids)), "an id is used twice"
    levels = [int(tag[1]) for tag, _ in read.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(deeper <= level + 1 for level, deeper in pairwise(levels))
    assert len(read.all("caption")) == len(read.all("table")) > 5
    assert all(attributes.get("scope") for attributes in read.all("th"))
    assert read.all("html")[0]["lang"] == "en"
    links = [str(attributes["href"]) for attributes in read.all("a") if "download" not in attributes]
    assert {link.removeprefix("#") for link in links} <= set(read.ids), "a link leads nowhere"
    for section in SECTIONS:
        assert (section.id in read.ids) != (section.id in _NOT_THERE)


@pytest.fixture(scope="module")
def gpu_page(gpu_record: Record) -> str:
    return render(gpu_record)


def table_of(page: str, caption: str) -> str:
    """The text of the table with a caption that begins with `caption`."""
    found = re.search(f"<caption><span>{re.escape(caption)}.*?</table>", page, re.DOTALL)
    assert found, caption
    return " ".join(Page(found[0].removesuffix("</table>").replace("<wbr>", "")).words.split())


def test_gpu_section(gpu_record: Record, gpu_page: str) -> None:
    words = Page(gpu_page.replace("<wbr>", "")).words
    assert "SIMULATED" not in words
    (gpu,) = gpu_record.machine.gpus
    facts = table_of(gpu_page, "The GPU at the start")
    for text in (
        gpu.name,
        gpu.uuid,
        "9.0",
        "4.92 TB/s",
        "41 °C",
        "124 W of 700 W",
        "gpu_idle",
        "on, 0 uncorrected errors",
    ):
        assert text in facts
    run = next(run for run in gpu_record.runs if run.variant == "vector" and run.workload.axes == {"n": 1 << 28})
    cold = run.performance.cold
    assert cold is not None
    moved = (run.performance.read + run.performance.written) * 1e9 / cold.timing.median_ns
    bandwidth = table_of(gpu_page, "Bandwidth, cold")
    for text in (
        rate(moved, "bytes/s"),
        percent(moved / 4.15e12),
        percent(run.performance.read * 1e9 / cold.timing.median_ns / 4.2e12),
    ):
        assert text in bandwidth
    assert "TB/s" in bandwidth
    ratios = table_of(gpu_page, "The fastest kernel of each device, cold, not interleaved")
    host = next(
        run for run in gpu_record.runs if run.kernel.endswith("int8/avx512") and run.workload.axes == {"n": 1 << 28}
    )
    assert host.performance.cold is not None
    assert f"{number(host.performance.cold.timing.median_ns / cold.timing.median_ns)}x" in ratios
    assert "the two were not interleaved" in words
    assert run.performance.call_overhead_ns is not None
    launches = table_of(gpu_page, "Cost of a launch")
    assert "an empty kernel launch – 521 ns CUDA graph" in launches
    assert "an empty kernel Python launch – 4.17 µs stream" in launches
    copies = table_of(gpu_page, "Copies between")
    assert "GB/s" in copies
    assert "host to device 22" in copies
    assert "upload, pinned memory – 128 MiB – – 54.1 GB/s" in copies
    assert "768 B" in table_of(gpu_page, "Device memory")


def test_every_receipt_is_shown(gpu_record: Record, gpu_page: str) -> None:
    receipts = table_of(gpu_page, "Receipts")
    for run in gpu_record.runs:
        shown = run.device == "cuda"
        assert (run.kernel in receipts) == shown
        if shown:
            assert run.receipt is not None
            assert run.receipt.code_hash[:12] in receipts
            assert run.receipt.uuid in receipts
            assert all(name in receipts for name in run.receipt.functions)


def test_two_devices_are_told_apart(gpu_page: str) -> None:
    read = Page(gpu_page.replace("<wbr>", ""))
    for caption in ("The best variant of each op", "Every kernel"):
        assert {"Device", "cpu", "cuda"} <= set(table_of(gpu_page, caption).split())
    assert {"cpu", "cuda"} <= set(re.findall(r"<h3>(\w+)</h3>", gpu_page)), "a roofline each"
    folds = re.findall(r"<summary>(c\w+) \w", gpu_page.replace("<wbr>", ""))
    assert folds.count("cpu") == folds.count("cuda") == 6, "kernel by shape, cold and hot, apart for each device"
    assert "Made-up GPU, 141 GiB" in read.words
    assert f"tritmark verify {'20250311T142233Z-00004f1c'}" in read.words


def test_what_is_simulated_cannot_be_overlooked(simulated_record: Record) -> None:
    page = render(simulated_record)
    read = Page(page.replace("<wbr>", ""))
    first, banner = page.index("<table"), page.index("SIMULATED</b>")
    assert banner < first, "before any figure"
    receipts = table_of(page, "Receipts")
    assert receipts.count("SIMULATED") == sum(run.device == "cuda" for run in simulated_record.runs)
    for caption in (
        "Bandwidth",
        "Cost of a launch",
        "The quickest kernel",
        "Copies between",
        "The points of the roofline of cuda",
    ):
        assert f"<span>{caption}" not in page
    assert "tritmark verify --allow-simulated" in read.words


def test_a_gpu_s_names_are_inert(gpu_record: Record) -> None:
    (gpu,) = gpu_record.machine.gpus
    gpus = (replace(gpu, name=HOSTILE, uuid=MARKS, driver=HOSTILE),)
    runs = []
    for run in gpu_record.runs:
        if run.receipt is not None and run.device == "cuda":
            receipt = replace(run.receipt, uuid=MARKS, functions=(HOSTILE,), note=MARKS, code_hash=HOSTILE)
            runs.append(run.model_copy(update={"receipt": receipt, "variant": HOSTILE, "format": MARKS}))
        else:
            runs.append(run)
    machine = gpu_record.machine.model_copy(update={"gpus": gpus})
    page = render(gpu_record.model_copy(update={"runs": tuple(runs), "machine": machine}))
    read = Page(page)
    assert not read.all("img")
    assert not {char for char in page if not char.isprintable() and char != "\n"}
    assert len(read.all("script")) == 1


def test_page_needs_nothing_from_outside(page: str) -> None:
    read = Page(page)
    for tag, attributes in read.tags:
        assert "src" not in attributes
        assert "style" not in attributes, f"<{tag}>: the policy would refuse it"
        assert not any(name.startswith("on") for name in attributes)
        target = attributes.get("href") or "#"
        assert (
            target.startswith("#")
            or target == "data:,"
            or ("download" in attributes and target.startswith("data:application/gzip;base64,"))
        )
    assert not re.search(r"url\((?!#)", page)
    assert "@import" not in page
    policy = str(read.all("meta")[1]["content"])
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(read.all("script")) == len(read.all("style")) == 1


def test_policy_admits_the_page_s_own_style_and_script(page: str) -> None:
    from base64 import b64encode
    from hashlib import sha256

    policy = str(Page(page).all("meta")[1]["content"])
    for tag in ("style", "script"):
        source = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[0]
        assert f"{tag}-src 'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'" in policy


def test_hostile_names_are_inert(page: str) -> None:
    read = Page(page)
    assert "<img" not in page
    assert not read.all("img")
    assert HOSTILE in read.words, "the name has to be shown as text"
    assert "7*7" in read.words
    unseen = {f"{ord(char):#x}" for char in page if not char.isprintable() and char != "\n"}
    assert not unseen, "a control character or direction mark went through"
    assert "\\u202e" in read.words
    assert "\\x1b[31m" in read.words
    assert read.around("שלום") <= {"bdi", "title"}, "text that runs right to left could reorder its neighbours"


def test_every_kernel_and_run_is_shown(record: Record, page: str) -> None:
    read = Page(page.replace("<wbr>", ""))
    for run in record.runs:
        assert visible(run.kernel) in read.words
    rows = len(record.runs)
    assert page.count('<td class="notes">') == rows
    assert "first divergence: q[639, 2559] is 1, expected -1" in read.words
    for layer in record.layers:
        assert visible(layer.name) in read.words
    for reason in ("no driver: /dev/nvidiactl is missing", "needs avx512_vnni", "the interval is 31 % wide"):
        assert reason in read.words


def test_failures_come_first_and_open(page: str) -> None:
    folds = [attributes for attributes in Page(page).all("details") if attributes.get("class") == "kernel"]
    opened = ["open" in attributes for attributes in folds]
    assert opened.count(True) == 4
    assert opened == sorted(opened, reverse=True)


def test_no_figure_is_broken_text(page: str) -> None:
    text = Page(page.replace("is nan,", "")).words
    assert not re.search(r"\b(nan|inf|None|Undefined|Status\.)\b", text)


def test_plots_are_labelled_and_take_the_page_s_colours(page: str) -> None:
    plots = re.findall("<svg.*?</svg>", page, re.DOTALL)
    assert page.count("percent of the measured ceiling</text>") == len(OPS) + 1, (
        "one for each op, format and dtype, and for the hostile name"
    )
    batch = page[page.index('<section id="batch"') : page.index('<section id="samples"')].count("<svg")
    assert batch > 0
    assert len(plots) == 1 + len(OPS) + 1 + batch, "and a roofline"
    assert all('role="img"' in plot and 'aria-label="' in plot for plot in plots)
    assert not re.findall("#0101[0-9a-f]{2}", "".join(plots)), "a placeholder colour was left"
    colours = set(re.findall('(?:fill|stroke)="(#[^"]*)"', "".join(plots)))
    assert not colours, "a colour that the page cannot change"
    for temperature in ("cold", "hot"):
        assert re.search(f"<title>cpu/[^<]*, {temperature}: [0-9.]+ [GM]OP/s</title>", plots[0])
    assert all(len(re.findall("<(?:use|path)", plot)) < 1000 for plot in plots)


def test_passing_record_says_so(small: Record) -> None:
    page = render(small)
    read = Page(page)
    assert f"No failure in {len(small.runs)} Runs, no failure in 3 layers" in read.words
    assert ' class="mark fail"' not in page
    assert not [
        attributes for attributes in read.all("details") if attributes.get("class") == "kernel" and "open" in attributes
    ]


@pytest.mark.nightly
def test_bare_and_odd_records_have_a_page_too(small: Record) -> None:
    machine = small.machine.model_copy(update={"ceilings": ()})
    slow = [ceiling.model_copy(update={"rate": 7.0}) for ceiling in small.machine.ceilings]
    first = small.runs[0]
    assert first.performance.hot is not None
    remark = first.performance.model_copy(update={"cold": None, "reason": "no cold figure: 64 bytes are too few"})
    unsure = MemoryUse(status=Status.AMBIGUOUS, reason="memory moved")
    for update, said in (
        ({"runs": (), "layers": ()}, "Nothing ran"),
        ({"runs": (), "machine": machine}, "No failure in 3 layers"),
        ({"complete": False, "layers": ()}, "interrupted"),
        ({"machine": machine, "layers": ()}, "No ceilings were measured"),
        ({"machine": machine.model_copy(update={"ceilings": tuple(slow)}), "layers": ()}, "7.00 OP/s"),
        (
            {"runs": (first.model_copy(update={"performance": remark}),), "layers": ()},
            "performance: no cold figure: 64 bytes are too few",
        ),
        ({"runs": (first.model_copy(update={"memory": unsure}),), "layers": ()}, "No failure in 1 Run (1 ambiguous)"),
    ):
        assert said in Page(render(small.model_copy(update=update))).words


@pytest.mark.nightly
@pytest.mark.parametrize("every_measured", [False, True])
def test_two_thousand_runs_stay_small_and_quick(every_measured: bool, tmp_path: Path) -> None:
    rng = random.Random(5)
    runs = clean_runs(rng, edges=53, every_measured=every_measured)[:2000]
    assert len(runs) == 2000
    record = record_of(runs)
    build(small_record(), tmp_path)  # imports and font lists are paid for once
    begun = time.process_time()
    path = build(record, tmp_path)
    assert time.process_time() - begun < 5
    assert path.stat().st_size < 2_000_000


def test_same_record_gives_the_same_bytes_whatever_the_caller_s_settings(record: Record, page: str) -> None:
    import matplotlib

    again = Record.model_validate(json.loads(record.model_dump_json()))
    with matplotlib.rc_context({"font.size": 23, "axes.facecolor": "red"}):
        assert render(again) == page
        assert matplotlib.rcParams["font.size"] == 23


def test_file_is_whole_or_not_there(small: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(small, tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / f"{small.id}.html"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        build(small.model_copy(update={"suite": "other"}), path.parent)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a\0b", "x" * 300, "a\n"])
def test_record_id_has_to_be_a_file_s_name(small: Record, tmp_path: Path, name: str) -> None:
    with pytest.raises(RecordError, match="record id"):
        build(small.model_copy(update={"id": name}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_commands_survive_the_shell() -> None:
    for word in ("plain", "two words", "it's", MARKS.replace("\0", ""), HOSTILE, "\udc80", "new\nline", ""):
        found = subprocess.run(["bash", "-c", f"printf %s {quoted(word)}"], capture_output=True, check=True).stdout
        assert found == word.encode("utf-8", "surrogateescape")
        assert quoted(word).isascii()
        assert quoted(word).isprintable()


def test_commands_repeat_the_figures(small: Record) -> None:
    prefix = "env OMP_PROC_BIND=close "
    run = "--op i2s_quantize --variant cpu/i2s_quantize/none/int8/scalar --threads 2 --seed 20250311"
    assert of_run(small, small.runs[0]) == f"{prefix}tritmark run --suite quick {run}"
    assert of_layers(small) == f"{prefix}tritmark run --weights /models/minilm/model.safetensors --seed 20250311"
    assert of_report(small) == f"tritmark report {small.id}"
    for given in (("--out", "some where"), ("--out=some where",)):
        elsewhere = small.environment.model_copy(update={"command": ("tritmark", "run", *given, "--seed", "1")})
        line = of_report(small.model_copy(update={"environment": elsewhere}))
        assert shlex.split(line) == ["tritmark", "report", *given, small.id]
    starred = small.runs[0].model_copy(update={"op": "a*", "kernel": "b[c]?"})
    assert "--op 'a[*]' --variant 'b[[]c][?]'" in of_run(small, starred)
    # A user's kernel is known to `tritmark check` alone.
    words = ("tritmark", "check", "my.c", "--threads", "4", "--seed=1", "--out", "some where")
    checked = small.model_copy(update={"environment": small.environment.model_copy(update={"command": words})})
    assert (
        of_run(checked, small.runs[0]) == f"{prefix}tritmark check my.c --out 'some where' --threads 2 --seed 20250311"
    )


def test_text_is_made_visible() -> None:
    assert visible("plain שלום\nnext") == "plain שלום\nnext"
    assert visible("a\u202eb\x1b[0m\udc80\u00a0") == "a\\u202eb\\x1b[0m\\udc80\\xa0"
    assert label("שלום") == "\\u05e9\\u05dc\\u05d5\\u05dd"
    assert label("x" * 90, 10) == "xxxxxxx..."


def test_units() -> None:
    assert [duration(ns) for ns in (None, 0, 0.5, 812, 999.7, 1234, 45_600_000, 1.2e9)] == [
        "–", "0 ns", "0.5 ns", "812 ns", "1.00 µs", "1.23 µs", "45.6 ms", "1.20 s",
    ]  # fmt: skip
    assert [size(nbytes) for nbytes in (0, 1023, 1024, 34_000_000)] == ["0 B", "1,023 B", "1.00 KiB", "32.4 MiB"]
    assert rate(38.6e9, "bytes/s") == "38.6 GB/s"
    assert rate(1.87e12, "operations/s") == "1.87 TOP/s"
    assert percent(0.8766) == "87.7 %"
    assert fraction(Ratio(median=0.9, low=0.89, high=0.91, pairs=9)) == "90.0 % (89.0 to 91.0)"
    assert [number(value) for value in (0, 1.23456e-7, 12.345, 99.96, 123456)] == [
        "0",
        "1.23e-07",
        "12.3",
        "100",
        "123,456",
    ]
