"""Names that do not exist: each way in names the nearest that does, and all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError, RegistrationError, UsageError
from tritmark.harness.judge.planning import plan
from tritmark.harness.judge.request import Request
from tritmark.harness.nearest import closest, did_you_mean, misspelt, nearest
from tritmark.harness.providers import load
from tritmark.kernels import (
    PROVIDER,
    PackedWeights,
    QuantizedLinear,
    i2s_quantize,
    pack_codes,
    pack_weights,
    ternary_matmul,
)
from tritmark.kernels.cuda.context import SELECT
from tritmark.kernels.cuda.device import FORCE as FORCE_CUDA
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.native.cpu import FORCE, ISAS
from tritmark.kernels.ternary_quantize.api import ternary_quantize

LEGAL = ("i2_s_x86", "i2_s_x86_r4", "tile64", "AVX2")
CODES, X = np.zeros((4, 256), np.int8), np.zeros((1, 256), np.int8)
PACKED = PackedWeights(np.zeros(1 << 13, np.uint8), "tile64", (4, 256), 1.0)


@pytest.mark.parametrize(
    ("name", "close"), [("tile46", "tile64"), ("TILE64", "tile64"), ("avx", "AVX2"), ("i2_s_x86_r", "i2_s_x86_r4")]
)
def test_the_closest_is_found_in_whatever_case(name: str, close: str) -> None:
    assert closest(name, LEGAL) == close
    assert did_you_mean(name, LEGAL) == f"did you mean {close!r}?"
    assert nearest(name, LEGAL) == f"did you mean {close!r}? legal: i2_s_x86, i2_s_x86_r4, tile64, AVX2"
    assert misspelt(name, LEGAL) == f"{name!r} (did you mean {close!r}?)"


def test_what_is_like_nothing_gets_no_offer() -> None:
    assert closest("quantum", LEGAL) is None
    assert nearest("quantum", LEGAL) == "legal: i2_s_x86, i2_s_x86_r4, tile64, AVX2"
    assert nearest("x", ()) == "legal: none"
    assert misspelt("quantum", LEGAL) == "'quantum'"
    assert misspelt("tile64", LEGAL) == "'tile64'"  # it does exist, and something else was wrong
    assert nearest("op/tile46", ["one"], among=["one", "op/tile64"]) == "did you mean 'op/tile64'? legal: one"


@pytest.mark.parametrize(
    "call",
    [
        lambda name: pack_weights(CODES, 1.0, format=name),
        lambda name: PackedWeights(np.zeros(64, np.uint8), name, (4, 4), 1.0),
        lambda name: PackedWeights.from_bytes(np.zeros(64, np.uint8), name, (4, 4)),
        PACKED.packed_as,
        lambda name: QuantizedLinear(np.ones((4, 4), np.float32), format=name),
        lambda name: pack_codes(CODES, 1.0, format=name),
        lambda name: ternary_quantize(np.zeros(128, np.float32), format=name, packed=True),
    ],
)
def test_functions_name_the_nearest_format(call: Callable[[str], Any]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        call("i2_s_x68")
    assert caught.value.argument == "format"
    assert caught.value.found == "'i2_s_x68' (did you mean 'i2_s_x86'?)"
    assert "i2_s_x86" in caught.value.legal.split(", ")


def test_what_is_no_name_gets_no_offer() -> None:
    wrong: Any = 5
    assert misspelt(wrong, LEGAL) == "5"
    with pytest.raises(InvalidArgumentError, match=f"format is 5; legal: {', '.join(FORMATS)}$"):
        pack_weights(CODES, 1.0, format=wrong)
    with pytest.raises(NoCompatibleKernelError, match="unknown device type; legal: cpu, cuda"):
        pack_weights(CODES, 1.0, device=wrong)


@pytest.mark.parametrize(
    "call",
    [
        lambda name: ternary_matmul(X, PACKED, device=name),
        lambda name: pack_weights(CODES, 1.0, device=name),
        lambda name: QuantizedLinear(np.ones((4, 4), np.float32), device=name),
        lambda name: i2s_quantize(np.zeros(4, np.float32), 1.0, device=name),
    ],
)
def test_functions_name_the_nearest_device(call: Callable[[str], Any]) -> None:
    with pytest.raises(NoCompatibleKernelError, match=r"unknown device type; did you mean 'cuda'\? legal: cpu, cuda"):
        call("cdua")


@pytest.mark.parametrize(
    "call",
    [
        lambda name: ternary_matmul(X, PACKED, variant=name),
        lambda name: pack_weights(CODES, 1.0, variant=name),
        lambda name: i2s_quantize(np.zeros(4, np.float32), 1.0, variant=name),
    ],
)
def test_functions_name_the_nearest_variant(call: Callable[[str], Any]) -> None:
    with pytest.raises(NoCompatibleKernelError, match=r"scalr: unknown variant; did you mean 'scalar'\? legal: "):
        call("scalr")


def test_a_variant_of_another_key_is_not_called_misspelt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SELECT, "simulator")
    with pytest.raises(NoCompatibleKernelError, match="variant 'sse41'\n"):
        pack_weights(CODES, 1.0, device="cpu", format="tq1_0", variant="sse41")


def test_the_environment_names_the_nearest_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(FORCE, "axv2")
        with pytest.raises(UsageError) as caught:
            i2s_quantize(np.zeros(4, np.float32), 1.0)
        assert str(caught.value) == f"{FORCE} is 'axv2'; did you mean 'avx2'? legal: {', '.join(ISAS)}"
    monkeypatch.setenv(SELECT, "simulatro")
    with pytest.raises(
        UsageError, match=rf"{SELECT} is 'simulatro'; did you mean 'simulator'\? legal: driver, simulator"
    ):
        i2s_quantize(np.zeros(4, np.float32), 1.0, device="cuda")
    monkeypatch.setenv(SELECT, "simulator")
    monkeypatch.setenv(FORCE_CUDA, "vectr")
    with pytest.raises(UsageError, match=rf"{FORCE_CUDA} is 'vectr'; did you mean 'vector'\? legal: .*v1"):
        i2s_quantize(np.zeros(4, np.float32), 1.0, device="cuda")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            {"device": "cdua"},
            "--device 'cdua' matches nothing that is installed; did you mean 'cuda'? legal: cpu, cuda",
        ),
        (
            {"op": "i2s_quantise"},
            "--op 'i2s_quantise' matches nothing in suite smoke; did you mean 'i2s_quantize'? legal: i2s_quantize, ",
        ),
        (
            {"variant": "axv512"},
            "--variant 'axv512' matches nothing for these ops; did you mean 'avx512'? legal: scalar, ",
        ),
    ],
)
def test_commands_name_the_nearest(asked: dict[str, Any], told: str) -> None:
    installed = load()
    with pytest.raises(UsageError) as caught:
        plan(installed, Request(suite=installed.suite("smoke"), **asked))
    assert told in str(caught.value)


def test_a_registration_names_the_nearest() -> None:
    mine = replace(PROVIDER.variants[0], name="mine")
    for key in (replace(mine.key, op="i2s_quantise"), replace(mine.key, device="cpuu")):
        with pytest.raises(RegistrationError, match="did you mean"):
            load().add(replace(mine, key=key))
