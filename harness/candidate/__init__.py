"""Candidates: third-party kernels from files. A Candidate can be pickled; its variants are made in the process that
runs them."""

from __future__ import annotations

from tritmark.harness.candidate.decorator import kernel
from tritmark.harness.candidate.python_file import PythonFile
from tritmark.harness.providers import Candidate

__all__ = ["Candidate", "PythonFile", "kernel"]
