"""A Python file that defines its variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from tritmark.harness.candidate.functions import source_code
from tritmark.harness.errors import UsageError
from tritmark.harness.spec import Variant

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed


@dataclass(frozen=True, slots=True)
class PythonFile:
    """A file whose `VARIANTS` is a sequence of Variant."""

    path: str

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """Run the file. Raises UsageError if it cannot be run or has no valid VARIANTS."""
        spec = spec_from_file_location(f"candidate_{Path(self.path).stem}", self.path)
        if spec is None or spec.loader is None:
            raise UsageError(f"{self.path}: not a Python file; legal: a file that ends in .py")
        module = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise UsageError(f"{self.path}: cannot be run: {type(error).__name__}: {error}") from error
        found = getattr(module, "VARIANTS", None)
        if not isinstance(found, Sequence) or not all(isinstance(each, Variant) for each in found) or not found:
            raise UsageError(
                f"{self.path}: VARIANTS is {found!r:.80}; legal: a sequence of tritmark.harness.spec.Variant"
            )
        code = partial(source_code, str(Path(self.path).resolve()))
        return [each if each.code("", frozenset()) else replace(each, code=code) for each in found]
