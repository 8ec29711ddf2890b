"""One input of a kernel in a file: the .npz that a failed check writes, and `tritmark check --inputs` replays.

It has the inputs as the reference takes them (`input.NAME`), the expected outputs (`expected.NAME`), and `about`: JSON
with the kernel, the axes, and how the arrays are placed. Dtypes that NumPy lacks are stored as unsigned integers of
their size. Arrays are read without pickle.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import UsageError
from tritmark.harness.validate.cases import Case

_INPUT, _EXPECTED, _ABOUT = "input.", "expected.", "about"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptInput:
    """What belongs to an input besides its arrays."""

    kernel: str
    """device/op/format/dtype/variant."""
    axes: Mapping[str, int]
    family: str
    layout: str
    threads: int
    seed: int


def write(path: Path, about: KeptInput, case: Case) -> None:
    """Write one case. Raises OSError."""
    arrays = {f"{_INPUT}{name}": np.asarray(value) for name, value in case.logical.items()}
    arrays |= {f"{_EXPECTED}{each.name}": each.values for each in case.expected}
    dtypes = {name: array.dtype.name for name, array in arrays.items()}
    text = json.dumps({"version": _VERSION, "dtypes": dtypes, **asdict(about)})
    path.parent.mkdir(parents=True, exist_ok=True)
    stored: dict[str, Any] = {name: _plain(array) for name, array in arrays.items()}
    np.savez_compressed(path, **stored, about=np.array(text))


def read(path: Path) -> tuple[KeptInput, dict[str, Any]]:
    """The description and the logical inputs. Raises UsageError for a file of another kind."""
    legal = "a .npz that `tritmark check` wrote"
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as found:
            told = json.loads(str(found[_ABOUT][()]))
            names = [name for name in found.files if name.startswith(_INPUT)]
            inputs = {name.removeprefix(_INPUT): _typed(found[name], told["dtypes"][name]) for name in names}
        if told.pop("version") != _VERSION:
            raise ValueError("another version")
        del told["dtypes"]
        return KeptInput(**told), inputs
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; legal: {legal}") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: cannot be read ({type(error).__name__}: {error}); legal: {legal}") from None


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array if array.dtype.kind in "biuf" and array.dtype.isbuiltin else array.view(f"u{array.dtype.itemsize}")


def _typed(array: npt.NDArray[Any], dtype: str) -> Any:
    wanted = named_dtype(dtype)
    typed = array if array.dtype == wanted else array.view(wanted)
    return typed if typed.ndim else typed[()]
