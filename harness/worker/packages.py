"""Imports packages with kernels in the server that workers are forked from.

It loads the objects that the entry points name, not only their modules: tritmark.kernels imports its variants at the
first use of its provider, and each worker would import them again. A package that fails to import is skipped, so that
the server survives; `providers.load` reports it.
"""

from contextlib import suppress
from importlib.metadata import entry_points

from tritmark.harness.providers import GROUP, VARIANTS

for _point in dict.fromkeys([*entry_points(group=GROUP), *entry_points(group=VARIANTS)]):
    with suppress(Exception, SystemExit):
        _point.load()
