"""The section on cross-validation: every result has its word, the section is omitted without comparisons, and names of
peers are inert."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tritmark.harness.record import Cross, Divergence, PeerComparison, Ratio, Record, Run, Status
from tritmark.harness.report import cross
from tritmark.harness.report.answer import answers
from tritmark.harness.report.page import _templates

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
MARKS = "a\u202egnp.exe \x1b[31mred\x1b[0m {{ 7*7 }} שלום"


def comparison(peer: str, status: Status = Status.PASS, **more: Any) -> PeerComparison:
    given: dict[str, Any] = {"version": "sha256:" + "5" * 64, "match": True, "elements": 655_360, "largest_error": 0.0}
    if status in {Status.NOT_RUN, Status.ERROR}:
        given = {"version": ""}
    reason = "" if status is Status.PASS else f"{peer} says why"
    return PeerComparison(peer=peer, **{"status": status, "reason": reason, **given, **more})


def timed(low: float, high: float, **more: Any) -> dict[str, Any]:
    middle = (low * high) ** 0.5
    yes = low > 1
    return {
        "own_ns": 21_300.0,
        "peer_ns": 21_300.0 * middle,
        "speedup": Ratio(median=middle, low=low, high=high, pairs=64),
        "migration_recommended": yes,
        "migration_reason": "yes: both are right, and it is faster" if yes else "no: not distinguishable",
        **more,
    }


OVERFLOW = {
    "match": False,
    "mismatches": 4,
    "peer_wrong": True,
    "largest_error": 1_048_576.0,
    "first": Divergence(output="out", index=(0, 3), expected="-772224", found="276352"),
    "exact": "276352",
    "inputs": {
        "activations[0, :]": "[127, 127, …] (2176 values from 127 to 127)",
        "weights[3, :]": "[1, 1, …] (2176 values from 1 to 1)",
    },
}
DIFFERING = {
    "match": False,
    "mismatches": 1,
    "largest_error": 1.0,
    "first": Divergence(output="out", index=(1, 2), expected="4", found="5"),
    "exact": "4",
    "migration_reason": "no: it differs, and the exact value is not on its side",
}


@pytest.fixture
def compared(gpu_record: Record) -> Record:
    """A Record with every result, and one Run without a peer."""
    outcomes = (
        (comparison("libggml", **timed(1.8, 2.2)), comparison("libbitnet.so:dot", **{**timed(1.1, 1.3), **OVERFLOW})),
        (
            comparison("libggml", Status.FAIL, **DIFFERING),
            comparison("onnxruntime", Status.NOT_RUN, reason="not installed: pip install it"),
        ),
        (
            comparison("libggml", Status.ERROR, reason="the peer raised OSError"),
            comparison("libggml2", **timed(0.9, 1.2)),
        ),
        (comparison("libbitnet.so:dot", Status.NOT_RUN, reason="not built: symbol dot is not in libbitnet.so"),),
    )
    runs = list(gpu_record.runs)
    places: dict[str, int] = {}
    for index, run in enumerate(runs):
        places.setdefault(run.kernel, index)
    for index, peers in zip(places.values(), outcomes, strict=False):
        runs[index] = with_peers(runs[index], *peers)
    return gpu_record.model_copy(update={"runs": tuple(runs)})


def with_peers(run: Run, *peers: PeerComparison) -> Run:
    return run.model_copy(update={"cross": Cross(status=Status.PASS, peers=peers)})


def body(record: Record) -> str:
    context = cross.SECTION.context(record)  # type: ignore[misc]
    assert context is not None
    return _templates().get_template(cross.SECTION.template).render(record=record, **context)


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.replace("<wbr>", "")).split())


def table_of(page: str, caption: str) -> str:
    found = re.search(f"<caption><span>{re.escape(caption)}.*?</table>", page, re.DOTALL)
    assert found, caption
    return words(found[0])


def test_there_is_no_section_where_nothing_was_compared(gpu_record: Record) -> None:
    assert cross.SECTION.context(gpu_record) is None  # type: ignore[misc]


def test_every_outcome_has_its_word_and_its_shape(compared: Record) -> None:
    page = body(compared)
    for word, mark in (
        ("MATCH", "pass"),
        ("DIFFERS", "fail"),
        ("ERROR", "error"),
        ("PEER INCORRECT", "peer-wrong"),
        ("NOT RUN", "not-run"),
    ):
        assert f'<b class="mark {mark}">{word}</b>' in page
    text = words(page)
    assert "4 comparisons; in 1 of them the peer is incorrect" in text
    assert "is recommended in 2 by the strict rule" in text


def test_the_divergence_comes_with_its_inputs(compared: Record) -> None:
    table = table_of(body(compared), "Divergences")
    assert (
        "out[0, 3] 276352 -772224 276352 activations[0, :] = [127, 127, …] (2176 values from 127 to 127) "
        "weights[3, :] ="
    ) in table
    assert table.index("DIFFERS") < table.index("PEER INCORRECT"), "incorrect kernels come first"
    assert "out[1, 2] 5 4 4" in table


def test_times_and_advice(compared: Record) -> None:
    page = body(compared)
    assert "1.99x (1.80 to 2.20)" in words(page)
    assert "yes: both are right, and it is faster" in page
    assert "no: not distinguishable" in page
    assert "no: it differs" in page


def test_every_peer_says_why_it_was_not_there(compared: Record) -> None:
    table = table_of(body(compared), "Every peer")
    assert "onnxruntime – 0 0 0 0 0 1 not installed: pip install it" in table
    assert "not built: symbol dot is not in libbitnet.so" in table
    assert "sha256:5555" in table


def test_the_longest_call_is_shown(compared: Record) -> None:
    """Half of the time of a short call is overhead."""
    kernel = next(run.kernel for run in compared.runs if run.cross.peers)
    runs = [run for run in compared.runs if run.kernel == kernel][:2]
    short, long = (
        {**timed(2.9, 3.1), "own_ns": 1e3, "peer_ns": 3e3},
        {**timed(1.4, 1.6), "own_ns": 1e6, "peer_ns": 1.5e6},
    )
    pair = tuple(with_peers(run, comparison("lib", **found)) for run, found in zip(runs, (short, long), strict=True))
    context = cross.SECTION.context(compared.model_copy(update={"runs": pair}))  # type: ignore[misc]
    assert context is not None
    (cell,) = context["ops"][0]["cells"]
    assert (cell["longest"].peer_ns, cell["timed"], cell["recommended"], cell["done"]) == (1.5e6, 2, 2, 2)


def test_text_is_inert(compared: Record) -> None:
    first = Divergence(output=HOSTILE, index=(0,), expected=MARKS, found=HOSTILE)
    hostile = {
        "match": False,
        "first": first,
        "exact": MARKS,
        "inputs": {HOSTILE: MARKS},
        "version": HOSTILE,
        "migration_reason": HOSTILE,
    }
    spoiled = with_peers(
        compared.runs[0],
        comparison(HOSTILE, Status.FAIL, **hostile),
        comparison(MARKS, Status.NOT_RUN, reason=HOSTILE),
        comparison(MARKS + "2", Status.ERROR, reason=MARKS),
    )
    page = body(compared.model_copy(update={"runs": (spoiled,)}))
    assert "<script" not in page
    assert "<img" not in page
    assert not {char for char in page if not char.isprintable() and char != "\n"}


def test_tables_are_whole(compared: Record) -> None:
    page = body(compared)
    for head, rows in re.findall(r"<thead>(.*?)</thead>\n<tbody>(.*?)</tbody>", page, re.DOTALL):
        columns = head.count("<th ")
        found = [row.count("<td") + row.count("<th ") for row in re.findall(r"<tr>.*?</tr>", rows, re.DOTALL)]
        assert found
        assert set(found) == {columns}
    assert page.count("<details") == page.count("</details>")
    assert page.count("<caption>") == page.count("<table")


def test_a_reference_is_named_and_no_peer_to_beat(compared: Record) -> None:
    ours = comparison("our own", reference=True, migration_reason="")
    quicker = {**timed(1.1, 1.3), "migration_within_tenth": True}
    slower = {**timed(0.91, 0.95), "migration_within_tenth": True}
    kernels = list({run.kernel: run for run in compared.runs}.values())
    record = compared.model_copy(
        update={
            "runs": (
                with_peers(kernels[0], ours, comparison("libggml", **quicker)),
                with_peers(kernels[1], ours, comparison("libggml", **slower)),
                with_peers(kernels[2], ours),
            )
        }
    )
    text = words(body(record))
    assert "5 comparisons. 3 of them are with a reference" in text
    assert "2 comparisons of speed" in text
    assert "in 1 by the strict rule" in text
    assert "in 2 by the lenient one" in text
    assert "our own (reference)" in table_of(body(record), "Every peer")
    (answer,) = [each for each in answers(record) if each.question == "Against peers?"]
    assert answer.statements == (
        "Compared: 2 kernels with peers, 1 kernel with our own only",
        "Of 2 comparisons of speed, the strict rule recommends migration in 1, the lenient one (at most 10 % "
        "slower) in 2",
    )
