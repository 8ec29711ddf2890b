"""tritmark.harness.candidate: anyone's kernel, from a file. A Candidate can be pickled, and its variants are made
where they run."""

from __future__ import annotations

from tritmark.harness.candidate.decorator import kernel
from tritmark.harness.candidate.python_file import PythonFile
from tritmark.harness.providers import Candidate

__all__ = ["Candidate", "PythonFile", "kernel"]
