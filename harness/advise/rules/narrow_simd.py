"""Scalar or narrow vector code."""

from __future__ import annotations

from collections.abc import Mapping

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.ladder import bare, ladder
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact, Function

PACKED = 0.5
WIDTHS = ((512, {"avx512f", "avx512bw", "avx512vl"}), (256, {"avx2"}), (128, {"sse4_1"}))
CONTROL = ("add", "sub", "inc", "dec", "cmp", "test", "lea")
"""What counts, compares and computes addresses; jumps are left out, too."""
LANE = 32
"""Bits of a lane that scalar code is taken to work on."""
DOT, WITHOUT = (
    "vpdpbusd",
    ("pmaddubsw", "vpmaddubsw", "pmaddwd", "vpmaddwd", "pmullw", "vpmullw", "pmulld", "vpmulld", "imul"),
)
DOTS = {"avx512_vnni", "avx_vnni"}
TILES = ("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud", "tdpbf16ps", "tdpfp16ps")
"""AMX: products of tiles; one of full tiles does as much as 256 vpdpbusd of 512 bits."""


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
    scalar = not packed or packed < PACKED * work
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
            edit=f"work on vectors of {widest} bits: intrinsics, or a loop without branches and dependences that the "
            "compiler can vectorise" + (f"; multiply and add up four bytes at a time with {DOT}" if undotted else ""),
        )
    )


def _moot(evidence: Evidence) -> bool:
    """A kernel that is named after an instruction set is to use no other: wider vectors, and dot products where its
    set has none, are those of a kernel for a better set."""
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
    widths = ", ".join(f"{count} of {width} bits" if width else f"{count} on one number" for width, count in vectors)
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
Looks at the hottest loop: under {PACKED} of its instructions (but for counting, comparing and jumping) work on vectors,
or on narrower ones than the processor has, or integer products are added up without {DOT} where the processor has it.
Loops of AMX's products of tiles are left alone.
Formula: the ratio of lanes (of {LANE} bits for scalar code), twice that without {DOT}; promised from
{code_facts.REACHED} of what it adds to 1 to what bytes and operations allow. It speaks only where the time lies far
above that of bytes and operations: memory does not become faster by wider vectors. Variants that are named after a
lesser instruction set are left alone, as their set has no wider vectors; they are what the rule can be held against:
`python suites/advise/score.py --code RECORD`.""",
    judge=_judge,
    moot=_moot,
)
