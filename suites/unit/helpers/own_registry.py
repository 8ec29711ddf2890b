"""Kernels for some tests only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tritmark.harness import providers
from tritmark.harness.spec import Variant
from tritmark.kernels import register


@contextmanager
def registered(*variants: Variant) -> Iterator[None]:
    """These kernels in a registry that ends with the context: other tests never see them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(providers, "_LOADED", [])
        register(*variants)
        yield
