"""Which variant is taken, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest

from tritmark import kernels
from tritmark.harness import providers
from tritmark.harness.errors import AmbiguousKernelError, NoCompatibleKernelError, RegistrationError, UsageError
from tritmark.harness.providers import GROUP, Installed, load
from tritmark.harness.registry import Registry
from tritmark.harness.spec import (
    Arrays,
    Axes,
    Device,
    KernelKey,
    Launch,
    MaxSize,
    MinSize,
    MultipleOf,
    Provider,
    Tier,
    Variant,
)
from tritmark.kernels import PROVIDER, i2s_quantize
from tritmark.kernels.native.cpu import DEVICE as CPU
from tritmark.kernels.native.cpu import FORCE, ISAS, Isa

pytestmark = pytest.mark.interpreter

KEY = KernelKey("cpu", "add", "none", "float32")
AXES = {"n": 96}


def device(type: str = "cpu", features: set[str] | None = None, forced: str | None = None) -> Device:
    have = frozenset({"fast"} if features is None else features)
    unused: Any = None
    return Device(
        type=type,
        summary="",
        features=lambda: have,
        clock=unused,
        ceilings=unused,
        cores=lambda: 2,
        forced=lambda: forced,
    )


def variant(name: str, tier: Tier = Tier.BASELINE, key: KernelKey = KEY, **needs: Any) -> Variant:
    unused: Any = None
    return Variant(key=key, name=name, tier=tier, summary="", bind=unused, **needs)


def test_the_highest_tier_that_fits_is_taken() -> None:
    registry = Registry(
        [device()],
        [
            variant("plain"),
            variant("wide", Tier.HIGHLY_OPTIMIZED, features=frozenset({"fast"}), constraints=(MultipleOf("n", 32),)),
            variant("wider", Tier.EXTREMELY_OPTIMIZED, features=frozenset({"faster"})),
        ],
    )
    assert registry.select_best(KEY, AXES).name == "wide"
    assert registry.select_best(KEY, {"n": 33}).name == "plain"
    assert registry.select_best(KEY, AXES, "plain").name == "plain"
    assert registry.has_kernel_for("cpu", "add", "none", "float32", AXES)
    assert not registry.has_kernel_for("cpu", "add", "none", "bfloat16")
    assert not registry.has_kernel_for("cpu", "add", "tq2_0", "float32")


@pytest.mark.parametrize(
    ("constraint", "n", "why"),
    [
        (MinSize("n", 97), 96, "n = 96 is under 97"),
        (MaxSize("n", 95), 96, "n = 96 is over 95"),
        (MultipleOf("n", 36), 96, "n = 96 is no multiple of 36"),
        (MinSize("n", 96), 96, None),
        (MaxSize("n", 96), 96, None),
        (MultipleOf("n", 32), 96, None),
    ],
)
def test_constraints_say_why(constraint: Any, n: int, why: str | None) -> None:
    assert constraint.refusal({"n": n}) == why
    registry = Registry([device()], [variant("only", constraints=(constraint,))])
    assert registry.candidates(KEY, {"n": n})[0][1] == why
    assert registry.candidates(KEY)[0][1] is None
    assert registry.has_kernel_for("cpu", "add", "none", "float32", {"n": n}) is (why is None)


def test_a_refusal_lists_every_candidate_and_why() -> None:
    registry = Registry(
        [device(features=set())],
        [variant("a", features=frozenset({"x", "y"})), variant("b", rank=1, constraints=(MaxSize("n", 5),))],
    )
    with pytest.raises(NoCompatibleKernelError) as caught:
        registry.select_best(KEY, AXES)
    assert caught.value.candidates == (("a", "this cpu lacks x, y"), ("b", "n = 96 is over 5"))
    assert "cpu/add/none/float32 with n=96" in str(caught.value)


def test_an_unknown_device_is_refused_and_never_assumed() -> None:
    registry = Registry([device()], [variant("odd", key=KernelKey("npu", "add", "none", "float32"))])
    with pytest.raises(NoCompatibleKernelError, match=r"unknown device type; did you mean 'cpu'\? legal: cpu"):
        registry.select_best(KernelKey("npu", "add", "none", "float32"), AXES)
    assert registry.candidates(KernelKey("npu", "add", "none", "float32"))[0][1] == "unknown device type 'npu'"
    assert not registry.has_kernel_for("npu", "add", "none", "float32")


def test_a_forced_variant_is_the_only_one() -> None:
    registry = Registry([device(forced="slow")], [variant("slow"), variant("quick", Tier.OPTIMIZED)])
    assert registry.select_best(KEY, AXES).name == "slow"
    assert registry.select_best(KEY, AXES, "quick").name == "quick"
    with pytest.raises(NoCompatibleKernelError, match=r"none such: unknown variant; .*legal: "):
        registry.select_best(KEY, AXES, "none such")


def test_what_nothing_decides_between_is_refused_when_it_is_registered() -> None:
    registry = Registry([device()], [variant("a"), variant("b", rank=1)])
    before = registry.version
    with pytest.raises(
        AmbiguousKernelError,
        match="none/float32/c and a both have tier BASELINE and rank 0; next: change the rank of one",
    ):
        registry.register(variant("d", rank=2), variant("c"))
    assert [each.name for each in registry.variants] == ["a", "b"]  # all or none
    assert registry.version == before
    with pytest.raises(AmbiguousKernelError):
        registry.register(variant("c", rank=2), variant("d", rank=2))
    listed = Registry([device()], [variant("a"), variant("b")], selects=False)
    assert [each.name for each in listed.variants] == ["a", "b"]


def test_rank_decides_within_a_tier_and_only_there() -> None:
    variants = [variant("a", rank=2), variant("b", rank=1), variant("c", Tier.REFERENCE, rank=3)]
    assert Registry([device()], variants).select_best(KEY, AXES).name == "a"


def test_a_candidate_is_taken_by_its_name_alone() -> None:
    registry = Registry(
        [device()], [variant("a", Tier.CANDIDATE), variant("b", Tier.CANDIDATE), variant("plain", Tier.REFERENCE)]
    )
    assert registry.select_best(KEY, AXES).name == "plain"
    assert registry.select_best(KEY, AXES, "b").name == "b"
    with pytest.raises(NoCompatibleKernelError, match="a: a candidate is selected only by name"):
        Registry([device()], [variant("a", Tier.CANDIDATE)]).select_best(KEY, AXES)


def test_what_is_registered_takes_effect_at_once_from_any_thread() -> None:
    """16 threads register and select at the same time: each sees its own at once, nothing is lost, and the best is
    the best of all."""
    registry = Registry([device()], [variant("first")])
    each, threads = 50, 16
    wrong: list[str] = []
    together = Barrier(threads)

    def work(number: int) -> None:
        together.wait()
        for nth in range(each):
            mine = variant(f"t{number}-{nth}", Tier.OPTIMIZED, rank=number + threads * nth)
            registry.register(mine)
            best = registry.select_best(KEY, AXES)
            if best.rank < mine.rank or registry.select_best(KEY, AXES, mine.name) is not mine:
                wrong.append(mine.name)
            try:
                registry.register(mine)
                wrong.append(f"{mine.name} twice")
            except RegistrationError:
                pass

    workers = [Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert len(registry.variants) == 1 + each * threads
    assert registry.select_best(KEY, AXES).rank == threads * each - 1


LADDER = {
    "plain": frozenset[str](),
    "slow": frozenset({"fast"}),
    "odd": frozenset({"fast"}),
    "quick": frozenset({"faster"}),
    "high": frozenset({"fast"}),
}


@pytest.mark.parametrize(
    ("forced", "taken"), [("plain", "plain"), ("slow", "slow"), ("odd", "slow"), ("high", "slow"), (None, "slow")]
)
def test_a_forced_step_without_a_kernel_leaves_the_best_below(forced: str | None, taken: str) -> None:
    steps = replace(device(forced=forced), ladder=lambda: LADDER)
    variants = [
        variant(name, Tier(rank), features=LADDER[name]) for rank, name in ((3, "quick"), (2, "slow"), (1, "plain"))
    ]
    assert Registry([steps], variants).select_best(KEY, AXES).name == taken
    with pytest.raises(NoCompatibleKernelError, match="odd: unknown variant; legal: "):
        Registry([steps], variants).select_best(KEY, AXES, "odd")


def test_a_forced_step_that_the_machine_lacks_is_refused() -> None:
    with pytest.raises(NoCompatibleKernelError, match="'quick' was requested, and this cpu lacks faster"):
        Registry([replace(device(forced="quick"), ladder=lambda: LADDER)], [variant("plain")]).select_best(KEY, AXES)
    only = [variant("quick", features=LADDER["quick"])]
    with pytest.raises(NoCompatibleKernelError, match="this cpu lacks faster"):
        Registry([replace(device(forced="quick"), ladder=lambda: LADDER)], only).select_best(KEY, AXES)
    with pytest.raises(NoCompatibleKernelError, match="'slow' was requested"):
        Registry([replace(device(forced="slow"), ladder=lambda: LADDER)], only).select_best(KEY, AXES)


def test_duplicates_are_refused() -> None:
    registry = Registry([device()], [variant("a")])
    with pytest.raises(RegistrationError, match="cpu/add/none/float32/a is registered already"):
        registry.register(variant("a"))
    with pytest.raises(RegistrationError, match="'cpu' is registered already"):
        registry.register_device(device())


@pytest.mark.parametrize("name", ["", "a/b"])
def test_a_variant_has_a_name_that_an_id_can_hold(name: str) -> None:
    with pytest.raises(RegistrationError, match="variant name"):
        variant(name)


@pytest.mark.parametrize("alignment", [0, -8, 3, 48])
def test_alignment_is_a_power_of_two(alignment: int) -> None:
    with pytest.raises(RegistrationError, match="power of two"):
        variant("a", alignment=alignment)


def provider(**parts: Any) -> Provider:
    return Provider(**{"ops": (), "variants": (), "devices": (), **parts})


def test_what_two_providers_bring_must_not_clash() -> None:
    with pytest.raises(RegistrationError, match="'cpu' is registered already"):
        Installed({"one": provider(devices=(device(),)), "two": provider(devices=(device(),))})
    with pytest.raises(RegistrationError, match="provider two: format 'x'"):
        Installed({"one": provider(formats={"x": 1}), "two": provider(formats={"x": 2})})
    with pytest.raises(RegistrationError, match="no provider brings the op 'add'"):
        Installed({"one": provider(devices=(device(),), variants=(variant("a"),))})


BROKEN = [
    (
        ("b", "no_such_module:thing"),
        "entry point 'b' of tritmark.providers (no_such_module:thing) is left out: ModuleNotFoundError",
    ),
    (("b", "json:no_such_thing"), "is left out: AttributeError"),
    (("b", "json:dumps"), "the object is a function; legal: a tritmark.harness.spec.Provider"),
    (("a", "tritmark.kernels:OPS"), "another package has a provider with the name 'a'"),
    (("b", "tritmark.kernels:PROVIDER"), "provider b: op 'i2s_quantize' is registered already"),
]


@pytest.mark.parametrize(("point", "told"), BROKEN)
def test_a_package_that_cannot_be_taken_is_told_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, point: tuple[str, str], told: str
) -> None:
    found = [EntryPoint("a", "tritmark.kernels:PROVIDER", GROUP), EntryPoint(*point, GROUP)]
    monkeypatch.setattr(providers, "entry_points", lambda group: found if group == GROUP else [])
    installed = load()
    assert len(installed.registry.variants) == len(PROVIDER.variants)
    (problem,) = installed.problems
    assert told in str(problem)
    assert problem.traceback.startswith("Traceback")


def stranger(folder: Path, name: str = "stranger") -> None:
    """A package as pip leaves it, whose module does not import."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {folder.name}_kernels:PROVIDER\n")


def test_a_package_that_comes_later_is_found_and_of_two_copies_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("second", "first"):
        (tmp_path / name).mkdir()
        monkeypatch.syspath_prepend(tmp_path / name)
    assert load().problems == ()
    for name in ("second", "first"):
        stranger(tmp_path / name)
        (problem,) = load().problems
        assert problem.value == f"{name}_kernels:PROVIDER"
    stranger(tmp_path / "second", "another")
    assert [each.value for each in load().problems] == ["first_kernels:PROVIDER", "second_kernels:PROVIDER"]
    points = entry_points(group=GROUP)
    assert [(each.name, each.value) for each in points] == [
        (each.name, each.value) for each in providers.entry_points(group=GROUP)
    ]


@pytest.mark.parametrize(
    ("command", "traceback"),
    [
        (["list", "ops"], True),
        (["doctor"], True),
        (["run", "--op", "i2s_quantize", "--variant", "scalar", "--suite", "smoke", "--device", "cpu"], False),
    ],
)
def test_commands_tell_of_a_package_that_cannot_be_taken(tmp_path: Path, command: list[str], traceback: bool) -> None:
    folder = tmp_path / "stranger"
    stranger(folder)
    (folder / "stranger_kernels.py").write_text("raise ValueError('what the stranger forgot')\n")
    ended = subprocess.run(
        [sys.executable, "-m", "tritmark.harness", *command],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")])),
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    told = ended.stdout + ended.stderr
    assert "entry point 'stranger' of tritmark.providers (stranger_kernels:PROVIDER) is left out: ValueError" in told
    assert "what the stranger forgot" in told
    assert ("stranger_kernels.py" in told) == traceback
    assert ended.returncode == (1 if command == ["doctor"] else 0)


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([], "next: pip install tritmark"),
        ([("a", "no_such_module:thing"), ("b", "json:dumps")], "ModuleNotFoundError"),
        ([("b", "json:dumps")], "function"),
    ],
)
def test_without_any_provider_nothing_goes_on(
    monkeypatch: pytest.MonkeyPatch, points: list[tuple[str, str]], told: str
) -> None:
    found = [EntryPoint(name, value, GROUP) for name, value in points]
    monkeypatch.setattr(providers, "entry_points", lambda group: found)
    with pytest.raises(UsageError) as caught:
        load()
    assert told in str(caught.value)


def test_the_same_entry_point_seen_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = [EntryPoint("builtin", "tritmark.kernels:PROVIDER", GROUP)] * 2
    monkeypatch.setattr(providers, "entry_points", lambda group: twice if group == GROUP else [])
    assert list(load().providers) == ["builtin"]


def test_everything_that_is_installed_can_be_registered() -> None:
    installed = load()
    assert installed.registry.variants
    for key in {each.key for each in installed.registry.variants}:
        assert key.op in installed.ops
        assert key.device in installed.registry.devices


@pytest.mark.parametrize("capability", ["7.5", "9.0"])
def test_no_choice_is_ambiguous(monkeypatch: pytest.MonkeyPatch, capability: str) -> None:
    """Variants of one tier and rank exclude each other on every workload that there is, on an old GPU and a new one."""
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    registry = load().registry
    lacking = (
        frozenset() if capability == "9.0" else {f"compute capability {name}" for name in ("8.0", "8.6", "8.9", "9.0")}
    )
    devices = [
        replace(device, missing=lambda: None, features=_without(device.features(), lacking))
        for device in registry.devices.values()
    ]
    here = Registry(devices, registry.variants)
    workloads = [
        item.workload for name in ("full", "gpu") for item in load().suite(name).selected if not item.workload.drawn
    ]
    for key in {each.key for each in here.variants}:
        for axes in {tuple(workload.axes.items()) for workload in workloads if workload.op == key.op}:
            here_now = [each for each, refusal in here.candidates(key, dict(axes)) if refusal is None]
            found = [each.precedence for each in here_now if not each.tier.named_only]
            assert len(found) == len(set(found)), f"{key} on {axes}"


PRODUCT = KernelKey("cpu", "ternary_matmul", "tile64", "int32")
PRODUCTS = {each.name for each in PROVIDER.variants if each.key == PRODUCT}


@pytest.mark.parametrize("best", [isa for isa in ISAS.values() if isa.name in PRODUCTS], ids=lambda isa: isa.name)
def test_a_product_takes_the_best_instruction_set_that_the_cpu_has(monkeypatch: pytest.MonkeyPatch, best: Isa) -> None:
    """With all lesser sets, and with those alone that need nothing else."""
    monkeypatch.delenv(FORCE, raising=False)
    key, axes = PRODUCT, {"M": 1, "N": 64, "K": 64}
    every = frozenset[str]().union(*(isa.features for isa in ISAS.values() if isa.rank <= best.rank))
    for features in (every, best.features):
        registry = Registry([replace(CPU, features=_without(features, ()))], load().registry.variants)
        assert registry.select_best(key, axes).name == best.name


def _without(features: frozenset[str], lacking: Iterable[str]) -> Callable[[], frozenset[str]]:
    return lambda: features - frozenset(lacking)


def test_a_missing_device_refuses_with_its_own_words_and_is_not_asked_for_anything() -> None:
    def never() -> frozenset[str]:
        raise AssertionError("a missing device was asked for its features")

    why = "no npu; next: plug one in"
    npu = replace(device("npu"), features=never, missing=lambda: why, forced=lambda: "small")
    key = replace(KEY, device="npu")
    registry = Registry(
        [device(), npu], [variant("plain"), variant("small", key=key), variant("large", key=key, rank=1)]
    )
    assert registry.candidates(key, AXES) == [(registry.variants[1], why), (registry.variants[2], why)]
    assert not registry.has_kernel_for("npu", "add", "none", "float32", AXES)
    with pytest.raises(NoCompatibleKernelError) as caught:
        registry.select_best(key, AXES)
    assert caught.value.candidates == (("small", why), ("large", why))
    assert registry.select_best(KEY, AXES).name == "plain"


def test_what_is_registered_is_taken_by_public_functions_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_LOADED", [])
    x = np.linspace(-2, 2, 40, dtype=np.float32)
    expected = i2s_quantize(x, 1.0)  # selected before, and remembered
    scalar = next(each for each in PROVIDER.variants if each.id == "cpu/i2s_quantize/none/int8/scalar")
    bound: list[str] = []

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        bound.append("mine")
        return scalar.bind(inputs, outputs, axes, threads)

    mine = replace(scalar, name="mine", tier=Tier.EXTREMELY_OPTIMIZED, rank=1 << 20, bind=bind)
    monkeypatch.delenv(FORCE, raising=False)
    kernels.register(mine)
    np.testing.assert_array_equal(i2s_quantize(x, 1.0), expected)
    assert bound == ["mine"]
    with pytest.raises(RegistrationError, match="no provider brings the op 'dream'"):
        kernels.register(replace(mine, key=replace(mine.key, op="dream")))


def test_formats_of_other_packages_stand_among_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_LOADED", [])
    theirs = replace(kernels.FORMATS["tile64"], name="theirs")
    found = [EntryPoint("a", "tritmark.kernels:PROVIDER", GROUP), EntryPoint("b", f"{__name__}:BRINGS_A_FORMAT", GROUP)]
    monkeypatch.setitem(globals(), "BRINGS_A_FORMAT", provider(formats={"theirs": theirs}))
    monkeypatch.setattr(providers, "entry_points", lambda group: found if group == GROUP else [])
    assert list(kernels.FORMATS)[-1] == "theirs"
    codes = np.ones((3, 5), np.int8)
    assert kernels.pack_weights(codes, 1.0, format="theirs").format == "theirs"


def test_peers_are_compared_with_formats_of_other_packages() -> None:
    """With those that have one scale, as the peers' own weights are made from codes and one scale."""
    theirs = {
        "theirs": replace(kernels.FORMATS["tile64"], name="theirs"),
        "blocks": replace(kernels.FORMATS["tq2_0"], name="blocks"),
    }
    peers = Installed({"builtin": PROVIDER, "b": provider(formats=theirs)}).peers
    products = [peer for peer in peers if peer.op == "ternary_matmul"]
    assert any("tile64" in peer.formats for peer in products)
    assert all(
        ("theirs" in peer.formats) == ("tile64" in peer.formats) and "blocks" not in peer.formats for peer in products
    )
    assert not any({"theirs", "blocks"} & peer.formats for peer in peers if peer.op != "ternary_matmul")


def test_the_code_of_another_packages_variant_is_not_this_ones() -> None:
    """Although it has the name of an instruction set, so that TRITMARK_FORCE_ISA finds it."""
    assert len(CPU.code_hash("cpu/ternary_matmul/tile64/float32/scalar")) == 64
    assert not CPU.code_hash("cpu/ternary_matmul/theirs/float32/scalar")
