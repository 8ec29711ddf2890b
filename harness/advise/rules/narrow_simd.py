"""Scalar or narrow vector code."""

from __future__ import annotations

from collections.abc import Mapping

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.ladder import bare, ladder
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact, Function

PACKED = 0.5
FEW = 0.1
"""The share of packed instructions below which a loop that has vectors of full width counts as scalar, too."""
WIDTHS = ((512, {"avx512f", "avx512bw", "avx512vl"}), (256, {"avx2"}), (128, {"sse4_1"}))
CONTROL = ("add", "sub", "inc", "dec", "cmp", "test", "lea")
"""Loop control: counters, comparisons, addresses. Jumps are excluded too."""
LANE = 32
"""Assumed bits of a scalar operation."""
DOT, WITHOUT = (
    "vpdpbusd",
    ("pmaddubsw", "vpmaddubsw", "pmaddwd", "vpmaddwd", "pmullw", "vpmullw", "pmulld", "vpmulld", "imul"),
)
DOTS = {"avx512_vnni", "avx_vnni"}
TILES = ("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud", "tdpbf16ps", "tdpfp16ps")
"""AMX products of tiles. One with full tiles does the work of 256 vpdpbusd of 512 bits."""


def _judge(evidence: Evidence) -> Finding | None:
    if evidence.on_device or evidence.code is None or not evidence.code.functions or not code_facts.far(evidence):
        return None
    function, features = evidence.code.functions[0], set(evidence.machine.features)
    widest = next((width for width, needed in WIDTHS if features.issuperset(needed)), 0)
    counts = function.loop or function.instructions
    if code_facts.number(counts, TILES):
        return None
    packed = sum(count for width, count in function.vectors.items() if width)
    used = max((width for width, count in function.vectors.items() if width), default=LANE)
    work = sum(count for name, count in counts.items() if name not in CONTROL and not name.startswith("j"))
    # A loop with full-width vectors is no scalar code because of its masks, addresses and branches.
    scalar = packed < (FEW if used >= (widest or LANE) else PACKED) * work or not packed
    undotted = (
        code_facts.product(evidence)
        and bool(features & DOTS)
        and not counts.get(DOT)
        and code_facts.number(counts, WITHOUT)
    )
    if not widest or not (scalar or used < widest or undotted):
        return None
    lanes = widest / (LANE if scalar else used)
    found = code_facts.promised(evidence, lanes * (2 if undotted else 1))
    return (
        None
        if found is None
        else Finding(
            evidence=_evidence(evidence, function, packed, widest, counts),
            gain=found,
            edit=f"use vectors of {widest} bits: intrinsics, or a loop without branches and dependences that the "
            "compiler can vectorize" + (f"; multiply and add four bytes at a time with {DOT}" if undotted else ""),
        )
    )


def _moot(evidence: Evidence) -> bool:
    """A kernel that is named after an instruction set must not use another one. Wider vectors, and dot products that
    its set lacks, belong in the kernel for a better set."""
    named, features = ladder().get(evidence.run.variant), set(evidence.machine.features)
    if named is None:
        return False
    own = {bare(name) for name in named}
    widest = next((needed for _, needed in WIDTHS if needed <= features), set())
    dots = {bare(name) for name in DOTS & features} if code_facts.product(evidence) else set()
    return not {bare(name) for name in widest} <= own or (bool(dots) and not dots & own)


def _evidence(
    evidence: Evidence, function: Function, packed: int, widest: int, counts: Mapping[str, int]
) -> tuple[Fact, ...]:
    vectors = sorted(function.vectors.items())
    widths = ", ".join(f"{count} of {width} bits" if width else f"{count} scalar" for width, count in vectors)
    return (
        code_facts.of(function),
        code_facts.counts("packed instructions", packed, counts, function),
        Fact(name="vector instructions", value=widths or "none", source="code.functions: vectors"),
        Fact(name=DOT, value=str(counts.get(DOT, 0)), source="code.functions"),
        Fact(name="widest vectors of the processor", value=f"{widest} bits", source="machine.features"),
        code_facts.distance(evidence),
    )


RULE = Rule(
    name="narrow-simd",
    number=23,
    title="The hottest loop does not use the widest vectors of this processor",
    needs="the host's code, and the processor's features",
    explanation=f"""\
Condition: in the hottest loop, less than {PACKED} of the instructions (except loop control) are packed ({FEW} if some
have the processor's width), or vectors are narrower than that, or integer products do not use {DOT} although the
processor has it. The time is far above the time of bytes and operations, because wider vectors do not speed up memory.
Loops with AMX products are excluded.
Formula: the ratio of vector widths ({LANE} bits for scalar code), twice that without {DOT}. The predicted gain is from
{code_facts.REACHED} of the formula's gain above 1 to the limit by bytes and operations. Variants named after a lower
instruction set get no proposal, because their set has no wider vectors. They serve to check the rule:
`python suites/advise/score.py --code RECORD`.""",
    judge=_judge,
    moot=_moot,
)
