"""Mutants of ternary_matmul_experts."""

from __future__ import annotations

from tritmark.harness.spec import EquivalentMutants, Mutant

MUTANTS: tuple[Mutant | EquivalentMutants, ...] = ()
