"""Leaves tritmark's own assertions to Python; import it before tritmark.

A package with a plugin of pytest has all its modules rewritten at their first import in an environment, so that a
failed assertion shows its values. For tritmark that takes 4 s of processor time, and no test shows such an assertion.
"""

from __future__ import annotations

import sys

from _pytest.assertion.rewrite import AssertionRewritingHook

for _finder in sys.meta_path:
    if isinstance(_finder, AssertionRewritingHook):
        _finder._must_rewrite.discard("tritmark")
