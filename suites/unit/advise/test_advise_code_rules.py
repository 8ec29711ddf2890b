"""Rules on compiled code: each applies to a planted fault, compiled for the test, and not to the fixed version."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tritmark.harness.advise.advise import advise
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding
from tritmark.harness.advise.rules import RULES
from tritmark.harness.disassembly import tools
from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.record import CeilingFacts, Code, Function, Ratio, Record, Run
from tritmark.harness.spec import Launched, Receipt
from tritmark.kernels.cuda.driver.compile import find_nvcc
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.cuda.launch.launch import code_files

REQUIRE = "TRITMARK_REQUIRE_NVCC"
RULE = {rule.name: rule for rule in RULES}
SOURCE = Path(__file__).with_name("planted_code.cu")
PLANTED = (
    ("narrow-loads", "gemm_narrow", "gemm_wide"),
    ("spills", "gemm_spilling", "gemm_held"),
    ("local-array", "gemm_indexed", "gemm_unindexed"),
    ("no-dp4a", "gemm_bytes", "gemm_dots"),
    ("unpacking", "gemm_unpacking", "gemm_dots"),
    ("conversions", "gemm_converting", "gemm_integers"),
    ("atomics", "gemm_adding", "gemm_parts"),
)


@pytest.fixture(scope="module")
def planted() -> dict[str, Function]:
    """The compiled planted kernels, as input of the rules."""
    try:
        find_nvcc()
        tools.find("nvdisasm")
    except (DeviceUnavailableError, tools.ToolError) as why:
        if os.environ.get(REQUIRE):
            pytest.fail(f"{REQUIRE} is set: {why}")
        pytest.skip(str(why))
    from tritmark.harness.disassembly import cubin

    names = dict.fromkeys(name for _, *both in PLANTED for name in both)
    kernels = tuple(Kernel(file=str(SOURCE), name=name, threads=256, registers=255) for name in names)
    (file,) = code_files(kernels, "sm_90")
    found = cubin.functions(file.data, file.entries, file.target, file.spilled)
    assert [function.name for function in found] == list(names)
    return {function.name: function for function in found}


def timed(
    record: Record,
    device: str,
    *,
    op: str = "ternary_matmul",
    fraction: float = 0.1,
    t: float = 1e6,
    ops: int = 0,
    **fields: Any,
) -> Run:
    """A timed Run of that device. By default its time is far above the time of bytes and operations."""
    run = next(
        each for each in record.runs if each.device == device and each.op == op and each.performance.hot is not None
    )
    hot = run.performance.hot
    assert hot is not None
    ratio = Ratio(median=fraction, low=fraction, high=fraction, pairs=30)
    timing = hot.timing.model_copy(update={"median_ns": t, "low_ns": t, "high_ns": t})
    hot = hot.model_copy(update={"timing": timing, "against": hot.against.model_copy(update={"fraction": ratio})})
    performance = run.performance.model_copy(update={"hot": hot, **({"operations": ops} if ops else {})})
    return run.model_copy(update={"performance": performance, **fields})


def judged(name: str, record: Record, run: Run, **machine: Any) -> Finding | None:
    kept = [each for each in record.machine.ceilings if each.name != "copy"]
    update = {"ceilings": (*kept, *machine.pop("more", ())), **machine}
    changed = record.model_copy(update={"runs": (run,), "machine": record.machine.model_copy(update=update)})
    found = RULE[name].judge(Evidence(changed, run))
    if found is not None:
        assert 1 <= found.gain.low <= found.gain.high
        assert found.evidence
        assert found.edit
        assert all(fact.value and fact.source for fact in found.evidence)
    return found


def coded(function: Function, *more: Function) -> Code:
    return Code(functions=(function, *more))


@pytest.mark.parametrize(("rule", "fault", "mended"), PLANTED)
def test_a_planted_fault_is_named_and_its_mended_twin_is_not(
    gpu_record: Record, planted: dict[str, Function], rule: str, fault: str, mended: str
) -> None:
    found = judged(rule, gpu_record, timed(gpu_record, "cuda", code=coded(planted[fault])))
    assert found is not None
    assert fault in str(found.evidence)
    assert judged(rule, gpu_record, timed(gpu_record, "cuda", code=coded(planted[mended]))) is None


@pytest.mark.parametrize(("rule", "fault"), [planted[:2] for planted in PLANTED])
def test_near_the_ceiling_and_without_code_they_are_silent(
    gpu_record: Record, planted: dict[str, Function], rule: str, fault: str
) -> None:
    assert judged(rule, gpu_record, timed(gpu_record, "cuda", code=coded(planted[fault]), fraction=0.9)) is None
    assert judged(rule, gpu_record, timed(gpu_record, "cuda", code=None)) is None
    assert judged(rule, gpu_record, timed(gpu_record, "cpu", code=coded(planted[fault]))) is None


def test_the_template_of_a_product_is_told_to_use_dot_products(
    gpu_record: Record, planted: dict[str, Function]
) -> None:
    """Kernels by `tritmark new` are correct and slow."""
    from tritmark.harness.disassembly import cubin

    (file,) = code_files(
        (Kernel(file="ternary_matmul/templates/ternary_matmul.cu", name="gemm_simple", threads=256, registers=255),),
        "sm_90",
    )
    (function,) = cubin.functions(file.data, file.entries, file.target, file.spilled)
    run = timed(gpu_record, "cuda", code=coded(function))
    assert judged("no-dp4a", gpu_record, run) is not None
    assert judged("narrow-loads", gpu_record, run) is not None


def test_tensor_cores(gpu_record: Record, planted: dict[str, Function]) -> None:
    rates = tuple(
        CeilingFacts(device="cuda", name=name, level="registers", threads=1, nbytes=0, rate=rate, unit="operations/s")
        for name, rate in (("compute", 8e14), ("dot", 1e14))
    )
    run = timed(gpu_record, "cuda", fraction=0.01)
    many = run.model_copy(update={"workload": run.workload.model_copy(update={"axes": {"M": 64, "N": 64, "K": 64}})})
    with_dots, plain = (run.model_copy(update={"code": coded(planted["gemm_dots"])}) for run in (many, run))
    found = judged("no-tensor-cores", gpu_record, with_dots, more=rates)
    assert found is not None
    assert found.gain.low == pytest.approx(1 + 0.4 * 7)
    assert judged("no-tensor-cores", gpu_record, plain, more=rates) is None
    matrix = planted["gemm_dots"].model_copy(update={"instructions": {**planted["gemm_dots"].instructions, "IMMA": 4}})
    assert judged("no-tensor-cores", gpu_record, many.model_copy(update={"code": coded(matrix)}), more=rates) is None


# The launch

PLAIN = Function(
    name="gemm_a", target="sm_90", registers=32, stack=0, shared=0, instructions={"LDG": 4, "FADD": 8}, loads={32: 4}
)


def launched(record: Record, *, grid: int, block: int = 256, resident: int | None = 8, fraction: float = 0.1) -> Run:
    launch = Launched(function="gemm_a", binary="ab" * 32, grid=(grid, 1, 1), block=(block, 1, 1), resident=resident)
    receipt = Receipt(
        kernel="a",
        ran="a",
        runs=1,
        threads=1,
        uuid=record.machine.gpus[0].uuid,
        functions=("gemm_a",),
        launched=(launch,),
    )
    return timed(record, "cuda", fraction=fraction, receipt=receipt, code=coded(PLAIN))


def test_fewer_blocks_than_multiprocessors(gpu_record: Record) -> None:
    found = judged("few-blocks", gpu_record, launched(gpu_record, grid=66))
    assert found is not None
    assert found.gain.low == pytest.approx(1.4)
    assert judged("few-blocks", gpu_record, launched(gpu_record, grid=132)) is None
    assert judged("few-blocks", gpu_record, launched(gpu_record, grid=130)) is None
    small = launched(gpu_record, grid=1)
    performance = small.performance.model_copy(update={"read": 10_000, "written": 2_000})
    assert judged("few-blocks", gpu_record, small.model_copy(update={"performance": performance})) is None


def test_the_last_wave(gpu_record: Record) -> None:
    held = 132 * 8
    found = judged("last-wave", gpu_record, launched(gpu_record, grid=held + 1, fraction=0.8))
    assert found is not None
    assert found.gain.high == pytest.approx(2 * held / (held + 1))
    for grid, resident, fraction in (
        (2 * held, 8, 0.8),
        (held, 8, 0.8),
        (20 * held + 1, 8, 0.8),
        (held + 1, None, 0.8),
        (held + 1, 8, 0.1),
    ):
        assert (
            judged("last-wave", gpu_record, launched(gpu_record, grid=grid, resident=resident, fraction=fraction))
            is None
        )


def test_blocks_of_whole_warps(gpu_record: Record) -> None:
    found = judged("whole-warps", gpu_record, launched(gpu_record, grid=1000, block=40))
    assert found is not None
    assert found.gain.high == pytest.approx(1 / (1 - 0.5 * 0.75))
    assert judged("whole-warps", gpu_record, launched(gpu_record, grid=1000, block=64)) is None


def test_low_occupancy(gpu_record: Record) -> None:
    found = judged("low-occupancy", gpu_record, launched(gpu_record, grid=10_000, resident=2))
    assert found is not None
    assert found.gain.low == pytest.approx(1 + 0.4 * 3)
    assert judged("low-occupancy", gpu_record, launched(gpu_record, grid=10_000, resident=4)) is None
    assert judged("low-occupancy", gpu_record, launched(gpu_record, grid=200, resident=2)) is None
    assert judged("low-occupancy", gpu_record, launched(gpu_record, grid=10_000, resident=None)) is None


def test_a_small_launch_beside_a_large_one_is_passed_over(gpu_record: Record) -> None:
    small = PLAIN.model_copy(update={"name": "gemm_b"})
    wide = PLAIN.model_copy(update={"loads": {128: 4}})
    run = launched(gpu_record, grid=10_000)
    assert run.receipt is not None
    second = Launched(function="gemm_b", binary="ab" * 32, grid=(1, 1, 1), block=(32, 1, 1))
    receipt = replace(run.receipt, launched=(*run.receipt.launched, second))
    both = run.model_copy(update={"receipt": receipt, "code": coded(wide, small)})
    assert judged("narrow-loads", gpu_record, both) is None
    alone = both.model_copy(update={"code": coded(small.model_copy(update={"name": "gemm_a"}))})
    assert judged("narrow-loads", gpu_record, alone) is not None


# The host

AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx2", "sse4_1")
SCALAR = Function(
    name="f", target="x86-64", instructions={"mulss": 4, "mov": 4}, loop={"mulss": 4, "mov": 4}, vectors={0: 4}
)
PACKED = Function(
    name="f", target="x86-64", instructions={"vmulps": 6, "add": 2}, loop={"vmulps": 6, "add": 2}, vectors={512: 6}
)
TILES = Function(
    name="f",
    target="x86-64",
    instructions={"tdpbssd": 4, "tileloadd": 4, "add": 2},
    loop={"tdpbssd": 4, "tileloadd": 4, "add": 2},
    vectors={},
)


@pytest.mark.parametrize(
    ("function", "features", "op", "fires"),
    [
        (SCALAR, AVX512, "i2s_quantize", True),
        (PACKED, AVX512, "i2s_quantize", False),
        (PACKED.model_copy(update={"loop": {"vmulps": 6, "kmovw": 20, "mov": 4}}), AVX512, "i2s_quantize", False),
        (PACKED.model_copy(update={"loop": {"vmulps": 6, "mulss": 94}}), AVX512, "i2s_quantize", True),
        (PACKED.model_copy(update={"vectors": {256: 6}}), AVX512, "i2s_quantize", True),
        (PACKED.model_copy(update={"vectors": {256: 6}}), ("avx2",), "i2s_quantize", False),
        (PACKED.model_copy(update={"loop": {"vpmaddubsw": 6, "add": 2}}), AVX512, "ternary_matmul", True),
        (PACKED.model_copy(update={"loop": {"vpdpbusd": 6, "add": 2}}), AVX512, "ternary_matmul", False),
        (
            PACKED.model_copy(update={"loop": {"vpmaddubsw": 6, "add": 2}}),
            ("avx512f", "avx512bw", "avx512vl"),
            "ternary_matmul",
            False,
        ),
        (SCALAR, (), "i2s_quantize", False),
        (TILES, (*AVX512, "amx_int8"), "ternary_matmul", False),
        (TILES.model_copy(update={"loop": {"mov": 8, "add": 2}}), (*AVX512, "amx_int8"), "ternary_matmul", True),
    ],
)
def test_narrow_simd(gpu_record: Record, function: Function, features: tuple[str, ...], op: str, fires: bool) -> None:
    found = judged("narrow-simd", gpu_record, timed(gpu_record, "cpu", op=op, code=coded(function)), features=features)
    assert (found is not None) == fires
    assert (
        judged(
            "narrow-simd",
            gpu_record,
            timed(gpu_record, "cpu", op=op, code=coded(function), fraction=0.9),
            features=features,
        )
        is None
    )


DOTTED = PACKED.model_copy(update={"loop": {"vpmaddubsw": 6, "add": 2}, "vectors": {256: 6}})


@pytest.mark.parametrize(
    ("variant", "features", "function", "op", "told"),
    [
        ("avx2", AVX512, PACKED.model_copy(update={"vectors": {256: 6}}), "i2s_quantize", False),
        ("sse41", AVX512, PACKED.model_copy(update={"vectors": {128: 6}}), "i2s_quantize", False),
        ("sse41", ("sse4_1", "avx2"), PACKED.model_copy(update={"vectors": {128: 6}}), "i2s_quantize", False),
        ("scalar", AVX512, SCALAR, "i2s_quantize", False),
        ("avx2", ("sse4_1", "avx2", "avx_vnni"), DOTTED, "ternary_matmul", False),
        ("avxvnni", ("sse4_1", "avx2", "avx_vnni"), DOTTED, "ternary_matmul", True),
        ("avx2", ("sse4_1", "avx2"), SCALAR, "i2s_quantize", True),
        ("avx512", AVX512, PACKED.model_copy(update={"vectors": {256: 6}}), "i2s_quantize", True),
        ("mine", AVX512, PACKED.model_copy(update={"vectors": {256: 6}}), "i2s_quantize", True),
    ],
)
def test_a_kernel_named_after_a_set_is_not_told_to_use_another(
    gpu_record: Record, variant: str, features: tuple[str, ...], function: Function, op: str, told: bool
) -> None:
    run = timed(gpu_record, "cpu", op=op, code=coded(function), variant=variant)
    machine = gpu_record.machine.model_copy(update={"features": features})
    record = gpu_record.model_copy(update={"runs": (run,), "machine": machine})
    assert ("narrow-simd" in {each.rule for each in advise(record)}) == told


def test_loop_chain(gpu_record: Record) -> None:
    def run(chain: float | None, throughput: float | None) -> Run:
        return timed(
            gpu_record,
            "cpu",
            code=coded(PACKED.model_copy(update={"chain_cycles": chain, "throughput_cycles": throughput})),
        )

    found = judged("loop-chain", gpu_record, run(4.0, 1.0))
    assert found is not None
    assert found.gain.low == pytest.approx(1 + 0.4 * 3)
    assert "4 independent accumulators" in found.edit
    for chain, throughput in ((1.2, 1.0), (None, 1.0), (None, None)):
        assert judged("loop-chain", gpu_record, run(chain, throughput)) is None


def test_a_tuned_kernel_at_the_ceiling_is_promised_next_to_nothing(
    gpu_record: Record, planted: dict[str, Function]
) -> None:
    """At 90 % of the ceiling no rule on code predicts more than 1.15x, for any code."""
    from tritmark.harness.advise.interval import capped

    for function in planted.values():
        run = launched(gpu_record, grid=132 * 8 + 1, block=40, fraction=0.9).model_copy(
            update={"code": coded(function)}
        )
        for rule in RULES:
            found = (
                rule.judge(Evidence(gpu_record.model_copy(update={"runs": (run,)}), run))
                if 7 <= rule.number <= 18
                else None
            )
            assert found is None or capped(found.gain, Evidence(gpu_record, run).cap).high <= 1.15
