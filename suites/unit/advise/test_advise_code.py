"""Facts of compiled code: loops, SASS, ELF notes, objdump and llvm-mca, on real code if its compiler is installed."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tritmark.harness.disassembly import code_of, cubin, native, tools
from tritmark.harness.disassembly.flow import Instruction, counted, flow
from tritmark.harness.errors import CompileError
from tritmark.harness.record import Code, Function
from tritmark.harness.spec import CodeFile, KernelKey, Launched, Proof, Receipt, Tier, Variant
from tritmark.harness.validate.evidence import with_proofs


def line(
    address: int, mnemonic: str = "add", to: int | None = None, *, falls: bool = True, indirect: bool = False
) -> Instruction:
    return Instruction(address, mnemonic, "", target=to, falls=falls, indirect=indirect)


def addresses(instructions: tuple[Instruction, ...]) -> list[int]:
    return [each.address for each in instructions]


def test_the_hottest_loop_is_the_longest_of_the_deepest() -> None:
    """A long loop that runs once gives way to a short one within two others."""
    outer = [line(0), line(1), line(2), line(3, "jne", 2), line(4), line(5, "jne", 1)]
    long = [line(10 + number) for number in range(12)] + [line(22, "jne", 10)]
    found = flow([*outer, *long, line(23, "ret", falls=False)])
    assert sorted(addresses(loop.instructions) for loop in found.innermost) == [[2, 3], list(range(10, 23))]
    assert {loop.depth for loop in found.innermost} == {1, 2}
    assert addresses(found.hottest.instructions) == [2, 3]
    assert (found.depths[1], found.depths[2], found.depths[12], found.depths.get(23)) == (1, 2, 1, None)


def test_a_jump_back_from_out_of_line_code_is_no_loop() -> None:
    """Code that a compiler places after the return, with a jump back, runs once."""
    code = [
        line(0),
        line(1, "je", 9),
        line(2),
        line(3),
        line(4, "ret", falls=False),
        line(9),
        line(10, "jmp", 2, falls=False),
    ]
    assert flow(code).innermost == ()
    assert flow([line(0, "EXIT", falls=False), line(1, "BRA", 1, falls=False)]).innermost == ()
    assert flow([]).hottest.instructions == ()


def test_loops_behind_a_table_of_jumps_are_found() -> None:
    code = [
        line(0),
        line(1, "jmp", falls=False, indirect=True),
        line(2),
        line(3, "jne", 2),
        line(4, "ret", falls=False),
    ]
    assert addresses(flow(code).hottest.instructions) == [2, 3]


def test_mnemonics_are_counted_without_modifiers_and_atomics_with_what_they_do() -> None:
    found = counted(
        [
            line(0, name)
            for name in ("LDG.E.128", "LDG.E", "REDG.E.ADD.STRONG.GPU", "REDG.E.MIN.64.STRONG.GPU", "ATOMS.POPC.INC.32")
        ]
    )
    assert found == {"LDG": 2, "REDG.ADD": 1, "REDG.MIN": 1, "ATOMS.INC": 1}


SASS = """
gemm_a:
.text.gemm_a:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/              @!P0 LDG.E.U8 R8, desc[UR4][R2.64+0x10] ;
        /*0030*/                   IDP.4A.S8.S8 R0, R4, R8, R0 ;
        /*0040*/              @P0 BRA `(.L_x_1) ;
        /*0050*/              @P1 EXIT ;
        /*0060*/                   STL [R1], R0 ;
        /*0070*/                   EXIT ;
.L_x_2:
        /*0080*/                   BRA `(.L_x_2);
        /*0090*/                   NOP;
.L_x_3:
"""


def test_sass() -> None:
    instructions = cubin.parsed(SASS)
    assert counted(instructions) == {"LDG": 2, "BRA": 2, "EXIT": 2, "LDC": 1, "IDP": 1, "STL": 1}
    assert addresses(flow(instructions).hottest.instructions) == [0x10, 0x20, 0x30, 0x40]
    assert cubin.loads(instructions) == {128: 1, 8: 1}
    assert [each.falls for each in instructions][-4:] == [True, True, False, False]


def test_a_damaged_cubin_has_no_resources() -> None:
    assert cubin.resources(b"") == cubin.resources(b"\x7fELF" + b"\xff" * 80) == {}


# On the host

C = r"""
#include <stddef.h>
#include <stdint.h>
#define PLAIN __attribute__((noinline, optimize("no-tree-vectorize", "no-unroll-loops")))
#define VECTORS __attribute__((noinline, target("avx2"), optimize("tree-vectorize")))
PLAIN void scalar(float *y, const float *x, size_t n) { for (size_t i = 0; i < n; i++) y[i] = x[i] * 3.0f + 1.0f; }
VECTORS void packed(float *y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = x[i] * 3.0f + 1.0f;
}
PLAIN double chained(const double *x, size_t n) { double s = 0; for (size_t i = 0; i < n; i++) s += x[i]; return s; }
PLAIN double free_(const double *x, size_t n)
{
    double s[8] = {0};
    double a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        a += x[i]; b += x[i + 1]; c += x[i + 2]; d += x[i + 3];
        e += x[i + 4]; f += x[i + 5]; g += x[i + 6]; h += x[i + 7];
    }
    s[0] = a + b + c + d + e + f + g + h;
    return s[0];
}
static PLAIN void inner(float *y, const float *x, size_t n) { for (size_t i = 0; i < n; i++) y[i] += x[i]; }
static PLAIN void unused(float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = y[i] * y[i] * y[i] - 1.0f / y[i] + y[i] * 5.0f;
}
typedef void (*step)(float *, const float *, size_t);
void deep(float *y, const float *x, size_t n)
{
    volatile step through = inner;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            through(y, x, n);
}
void other(float *y, size_t n) { unused(y, n); }
"""

needs_x86 = pytest.mark.skipif(
    __import__("platform").machine() != "x86_64", reason="the rules on host code know x86-64"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    (folder / "planted.c").write_text(C)
    path = folder / "planted.so"
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "-o", str(path), str(folder / "planted.c")], check=True)
    return path


def host(path: Path, entry: str) -> tuple[Function, ...]:
    return native.functions(str(path), (entry,), "x86-64")[0]


@needs_x86
def test_host_loops_vectors_and_loads(library: Path) -> None:
    (scalar,), (packed,) = host(library, "scalar"), host(library, "packed")
    assert set(scalar.vectors) == {0}
    assert scalar.loads.keys() == {32}
    assert packed.vectors[256] >= 0.5 * sum(packed.loop.values())
    assert 256 in packed.loads


@needs_x86
def test_what_an_entry_reaches_is_read_and_nothing_else(library: Path) -> None:
    """`inner` is called through a pointer within two loops, so its own loop is hotter than the one that calls it."""
    assert [function.name for function in host(library, "deep")] == ["inner", "deep"]
    assert host(library, "other")[0].name == "unused"


@needs_x86
def test_a_chain_of_additions_takes_longer_than_its_units(library: Path) -> None:
    if not shutil.which("llvm-mca"):
        pytest.skip(tools.NEXT["llvm-mca"])
    chained, free = host(library, "chained")[0], host(library, "free_")[0]
    assert chained.chain_cycles is not None
    assert chained.throughput_cycles is not None
    assert chained.chain_cycles >= 2 * chained.throughput_cycles
    assert free.throughput_cycles is not None
    assert free.chain_cycles is None or free.chain_cycles < 1.5 * free.throughput_cycles


def variant_of(*files: CodeFile) -> Variant:
    return Variant(
        key=KernelKey("cpu", "planted", "none", "float32"),
        name="planted",
        tier=Tier.REFERENCE,
        summary="",
        bind=lambda inputs, outputs, axes, threads: None,  # type: ignore[arg-type, return-value]
        code=lambda target, binaries=frozenset(): files,  # type: ignore[misc]
    )


@needs_x86
def test_what_a_tool_cannot_tell_becomes_a_note(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "--strip-all", "-o", str(stripped), str(library)], check=True)
    file = CodeFile(kind="native", name="planted", entries=("gone",), target="x86-64", path=str(library))
    assert "has no symbol gone; next: build it without stripping" in str(code_of(variant_of(file)))
    inner = CodeFile(kind="native", name="planted", entries=("inner",), target="x86-64", path=str(stripped))
    assert "has no symbol inner" in str(code_of(variant_of(inner)))

    def absent(tool: str) -> Path:
        raise tools.ToolError(f"{tool} was not found; next: {tools.NEXT[tool]}")

    monkeypatch.setattr(tools, "find", absent)
    broken = CodeFile(kind="cubin", name="a.cu", entries=("gemm_a",), target="sm_90", data=b"no cubin")
    found = code_of(variant_of(broken))
    assert found == Code(notes=(f"a.cu: nvdisasm was not found; next: {tools.NEXT['nvdisasm']}",))


def test_no_code_and_code_that_does_not_compile() -> None:
    assert code_of(variant_of()) is None
    simulated = Receipt(kernel="cuda/a", ran="a", runs=1, threads=1, simulated=True)
    assert (
        code_of(variant_of(CodeFile(kind="cubin", name="a", entries=(), target="sm_90", data=b"x")), simulated) is None
    )

    def broken(target: str, binaries: frozenset[str]) -> tuple[CodeFile, ...]:
        raise CompileError("no", next_step="mend it")

    found = code_of(replace(variant_of(), code=broken))
    assert found == Code(notes=("no; next: mend it",))


def test_only_what_was_launched_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from hashlib import sha256

    asked: list[tuple[str, ...]] = []

    def functions(data: bytes, names: tuple[str, ...], target: str, spilled: object) -> tuple[Function, ...]:
        asked.append(tuple(names))
        return tuple(Function(name=name, target=target) for name in names)

    monkeypatch.setattr(cubin, "functions", functions)
    monkeypatch.setattr(tools, "version", lambda tool: f"{tool} 1")
    one, two = b"one of two binaries", b"the other of two"
    launch = Launched(function="gemm_b", binary=sha256(two).hexdigest(), grid=(1, 1, 1), block=(32, 1, 1))
    receipt = Receipt(kernel="cuda/a", ran="a", runs=1, threads=1, functions=("gemm_b",), launched=(launch,))
    files = [
        CodeFile(kind="cubin", name="a", entries=("gemm_a", "gemm_b"), target="sm_90", data=data) for data in (one, two)
    ]
    found = code_of(variant_of(*files), receipt)
    assert asked == [("gemm_b",)]
    assert found == Code(functions=(Function(name="gemm_b", target="sm_90"),), tools=("nvdisasm 1",))
    code_of(variant_of(*files), receipt)
    assert len(asked) == 1


def test_a_prefix_of_the_encoding_is_none_of_the_mnemonic() -> None:
    found = native.parsed(
        "  718:\t{vex} vpdpbusd ymm7,ymm4,YMMWORD PTR [rax]\n  720:\tvaddss xmm0,xmm0,xmm1\n  724:\tret\n"
    )
    assert counted(found) == {"vpdpbusd": 1, "vaddss": 1, "ret": 1}
    assert native.vectors(found) == {256: 1, 0: 1}
    assert native.loads(found) == {256: 1}


def test_native_variants_name_their_code() -> None:
    """Each built-in host variant finds its extension module and its function in it, without loading it."""
    from tritmark.kernels import PROVIDER
    from tritmark.kernels.ternary_matmul.cpu import FORMATS as PRODUCTS

    host_variants = [variant for variant in PROVIDER.variants if variant.key.device == "cpu"]
    assert host_variants
    for variant in host_variants:
        (file,) = variant.code("", frozenset())
        assert Path(file.path).is_file()
        op = variant.key.op.replace("hadamard_transform", "hadamard_quantize")  # one module and kernel for both
        table = PRODUCTS[variant.key.format][0] if op.startswith("ternary_matmul") else op
        assert file.entries == (f"tm_{table}_{variant.name}",)


@needs_x86
def test_the_code_of_a_native_kernel() -> None:
    from tritmark.kernels import PROVIDER

    found = {
        variant.name: code_of(variant)
        for variant in PROVIDER.variants
        if variant.id.startswith("cpu/ternary_matmul/tile64/int32/")
    }
    for code in found.values():
        assert code is not None
        assert code.tools[0].startswith("objdump ")
    best, scalar = found["avx512"], found["scalar"]
    assert best is not None
    assert scalar is not None
    assert best.functions[0].loop["vpdpbusd"] >= 8
    assert best.functions[0].vectors[512] > 0.5 * sum(best.functions[0].loop.values())
    assert "vpdpbusd" not in scalar.functions[0].instructions
    narrow = found["avxvnni"]
    assert narrow is not None
    assert sum(each.instructions.get("vpdpbusd", 0) for each in narrow.functions) >= 16
    assert not any(512 in each.vectors for each in narrow.functions)


def test_a_kernel_of_a_user_names_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tritmark.harness.candidate.opening import open_candidate
    from tritmark.harness.providers import load

    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path / "cache"))
    example = Path(__file__).parents[2] / "examples" / "quantize.c"
    (variant,) = open_candidate(example).variants(load())
    found = code_of(variant)
    assert found is not None
    assert found.functions[0].name == "quantize"


def test_launches_are_added_up_in_the_receipt() -> None:
    launch = Launched(function="gemm_a", binary="ab" * 32, grid=(7, 1, 1), block=(32, 1, 1), shared=64, resident=3)
    other = replace(launch, grid=(8, 1, 1))
    proofs = [
        Proof(
            uuid="GPU-1",
            functions=("gemm_a",),
            launches=1,
            device_ns=1.0,
            timed_runs=1,
            code_hash="1" * 64,
            simulated=False,
            launched=launched,
        )
        for launched in ((launch,), (launch, other))
    ]
    assert with_proofs(Receipt(kernel="a", ran="a", runs=2, threads=1), proofs).launched == (launch, other)


def test_no_more_is_compiled_than_was_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    from tritmark.kernels.cuda.driver import compile as compiler
    from tritmark.kernels.cuda.kernel import Kernel
    from tritmark.kernels.cuda.launch.launch import code_files

    kernels = tuple(Kernel(file="a.cu", name=f"gemm_{name}", threads=32, registers=32) for name in "abc")
    cubins = {kernel: compiler.Cubin(kernel.name.encode(), "", cached=True) for kernel in kernels}
    asked: list[str] = []

    def compile_kernel(kernel: Kernel, arch: str) -> compiler.Cubin:
        asked.append(kernel.name)
        return cubins[kernel]

    monkeypatch.setattr(compiler, "compile_kernel", compile_kernel)
    monkeypatch.setattr(
        compiler, "compiled_before", lambda kernel, arch: cubins[kernel] if kernel.name == "gemm_b" else None
    )
    wanted = frozenset({cubins[kernels[1]].hash})
    assert [file.entries for file in code_files(kernels, "sm_90", wanted)] == [("gemm_b",)]
    assert asked == []
    assert [file.entries for file in code_files(kernels, "sm_90", frozenset({cubins[kernels[2]].hash}))] == [
        ("gemm_c",)
    ]
    assert asked == ["gemm_a", "gemm_c"]
    assert len(code_files(kernels, "sm_90")) == 3
