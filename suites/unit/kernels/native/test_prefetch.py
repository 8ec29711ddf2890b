"""How far ahead weights are fetched: a setting that changes no bits, refuses what is out of range, and follows what
`tritmark tune prefetch` found for this machine and this code alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness import caches, prefetched, tuned
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import KernelKey, Receipt
from tritmark.kernels import OPS, PROVIDER, QuantizedLinear, activation_quantize, pack_weights, ternary_matmul
from tritmark.kernels.native import cpu
from tritmark.kernels.native import prefetch as room
from tritmark.kernels.native.prefetch import FEATURE, OP, PREFETCHING, STRATEGIES, identity, set_prefetch, used

MULTIPLES = {
    "tile64": (1, 1),
    "tile80": (1, 1),
    "i2_s_x86": (1, 128),
    "tq2_0": (1, 256),
    "tq1_0": (1, 256),
    "q2_0": (1, 64),
    "tile64_g64": (1, 64),
    "tile64_g256": (1, 256),
    "iq2_bn_r4": (4, 64),
}
"""What N and K are multiples of."""
KEYS = {KernelKey("cpu", OP, "tile64", "int32")} | {KernelKey("cpu", OP, each, "float32") for each in MULTIPLES}
VARIANTS = [
    each
    for each in PROVIDER.variants
    if each.key in KEYS and FEATURE in each.features and each.features <= cpu.features()
]
pytestmark = pytest.mark.skipif(not VARIANTS, reason="no kernel here fetches ahead")
distances = st.integers(1, 1024).map(lambda lines: 64 * lines)


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    PREFETCHING.use("")


@given(
    variant=st.sampled_from(VARIANTS),
    level=st.sampled_from(["L1", "L2"]),
    distance=distances,
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 150), st.integers(1, 600)),
    threads=st.integers(1, 2),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_strategy_changes_a_bit(
    variant: Any, level: str, distance: int, sizes: tuple[int, int, int], threads: int, seed: int
) -> None:
    M, N, K = sizes
    rows, columns = MULTIPLES[variant.key.format]
    axes = {"M": M, "N": rows * N, "K": -(-K // columns) * columns}
    (op,) = (each for each in OPS if each.name == OP)
    logical = op.generate(axes, "normal", np.random.default_rng(seed))
    inputs = op.encode(logical, axes, variant.key.format)
    found = []
    for told in (("none", 0), (level, distance)):
        set_prefetch(*told)
        out = np.full((M, axes["N"]), 77, variant.key.dtype)
        variant.bind(inputs, {"out": out}, axes, threads).run()
        found.append(out)
    assert np.array_equal(found[0].view(np.uint8), found[1].view(np.uint8))
    if variant.key.dtype == "int32":
        assert np.array_equal(found[0], op.reference(logical, axes, variant.key)["out"])


@given(level=st.sampled_from(["L1", "L2"]), distance=distances)
def test_what_is_told_is_what_kernels_find(level: str, distance: int) -> None:
    set_prefetch(level, distance)
    assert used() == f"{level} {distance}"
    set_prefetch("none")
    assert used() == "none"


@given(level=st.sampled_from(["L1", "L2"]), distance=distances)
def test_what_is_told_for_tiles_alone_holds_for_no_other_format(level: str, distance: int) -> None:
    module = cpu.native(OP)
    set_prefetch(None)
    builtin = module.prefetch(False)
    module.tell_prefetch(level, distance, True)
    assert module.prefetch() == (level, distance)
    assert module.prefetch(False) == builtin
    set_prefetch(level, distance)
    assert module.prefetch() == module.prefetch(False) == (level, distance)


@given(
    told=st.one_of(
        st.tuples(
            st.sampled_from(["L1", "L2"]),
            st.one_of(
                st.integers().filter(lambda each: not (64 <= each <= 65536 and each % 64 == 0)),
                st.booleans(),
                st.floats(),
                st.just("1024"),
            ),
        ),
        st.tuples(st.sampled_from(["none", None]), st.integers().filter(bool)),
        st.tuples(st.text().filter(lambda each: each not in {"none", "L1", "L2"}), distances),
    )
)
def test_what_is_out_of_range_is_refused_and_changes_nothing(told: tuple[Any, Any]) -> None:
    set_prefetch("L1", 192)
    with pytest.raises(InvalidArgumentError, match="legal: ") as refused:
        set_prefetch(*told)
    assert refused.value.argument in {"level", "distance"}
    assert used() == "L1 192"


def test_the_boundary_refuses_by_itself() -> None:
    module = cpu.native(OP)
    set_prefetch("L2", 128)
    for level, distance in (("L1", 0), ("L2", 65), ("L2", 65536 + 64), ("L1", -64), ("none", 64)):
        with pytest.raises(ValueError, match=r"a prefetch of -?[0-9]+ bytes into"):
            module.tell_prefetch(level, distance)
    assert used() == "L2 128"


def test_the_built_in_strategy_is_the_first_and_none_is_named_twice() -> None:
    asked = PREFETCHING
    set_prefetch(None)
    builtin = used()
    set_prefetch("L1", 64)
    names = asked.strategies()
    assert used() == "L1 64"  # asking changes nothing
    assert names[0] == builtin
    assert sorted(names) == sorted({*STRATEGIES, builtin})
    for name in names:
        asked.use(name)
        assert used() == name


def kept(folder: Path, **changes: Any) -> str:
    """What a new process does where `tritmark tune prefetch` had found something else than what is built in."""
    set_prefetch(None)
    builtin = used()
    found = {"device": "cpu", "op": OP, "identity": identity(), "builtin": builtin, "chosen": "L1 2048"} | changes
    place = folder / "tuned" / "prefetch.json"
    place.parent.mkdir()
    place.write_text(prefetched.text((found,)), encoding="utf-8")
    return in_a_new_process(folder)


ASKED = "from tritmark.kernels.native import prefetch; print(prefetch.used(), '/', prefetch.tuned_now('tile64'))"


def in_a_new_process(folder: Path, **variables: str) -> str:
    environment = os.environ | {caches.CACHE: str(folder), tuned.SELECT: "on"} | variables
    done = subprocess.run(
        [sys.executable, "-c", ASKED], env=environment, check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout.strip()


def test_what_was_found_here_is_obeyed_unless_that_is_off(tmp_path: Path) -> None:
    assert kept(tmp_path) == "L1 2048 / prefetch L1 2048"
    set_prefetch(None)
    assert in_a_new_process(tmp_path, TRITMARK_TUNED="off") == f"{used()} /"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "changes",
    [
        {"identity": {"device": "another", "code": "x"}},
        {"builtin": "L2 64"},
        {"op": "another"},
        {"device": "cuda"},
        {"chosen": ""},
        {"chosen": "L3 64"},
        {"chosen": "L1 100000"},
    ],
    ids=str,
)
def test_what_holds_for_something_else_is_ignored(tmp_path: Path, changes: dict[str, Any]) -> None:
    found = kept(tmp_path, **changes)
    set_prefetch(None)
    assert found == f"{used()} /"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2, "tuned": []}', '{"version": 1, "tuned": [3]}'])
def test_a_damaged_file_is_as_if_there_were_none(tmp_path: Path, text: str) -> None:
    place = tmp_path / "tuned" / "prefetch.json"
    place.parent.mkdir()
    place.write_text(text, encoding="utf-8")
    set_prefetch(None)
    assert in_a_new_process(tmp_path) == f"{used()} /"


def receipt(layer: QuantizedLinear) -> Receipt:
    assert layer.receipt is not None
    return layer.receipt


def test_receipts_say_what_was_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(caches.CACHE, str(tmp_path))
    monkeypatch.delenv(tuned.SELECT, raising=False)
    set_prefetch(None)
    chosen = next(each for each in STRATEGIES if each != used())
    found = {"device": "cpu", "op": OP, "identity": identity(), "builtin": used(), "chosen": chosen}
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "prefetch.json").write_text(json.dumps({"version": 1, "tuned": [found]}))
    layer = QuantizedLinear(pack_weights(np.ones((64, 64), np.int8), 1.0), variant=VARIANTS[-1].name)
    x = np.ones((1, 64), np.float32)
    before = layer(x)
    assert receipt(layer).tuned == ""
    room.prepare(cpu.native(OP))
    for _ in range(3):  # the last ones follow a plan
        assert np.array_equal(before, layer(x))
        assert receipt(layer).tuned == f"prefetch {chosen}"
    other = QuantizedLinear(pack_weights(np.ones((64, 128), np.int8), 1.0, format="i2_s_x86"))
    other(np.ones((1, 128), np.float32))
    assert receipt(other).tuned == ""
    q = activation_quantize(x)
    assert ternary_matmul(q.q, layer.weights, act_scale=q.scale).shape == (1, 64)
    set_prefetch(None)
    layer(x)
    assert receipt(layer).tuned == ""
