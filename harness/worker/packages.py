"""Imports packages with kernels in the server that workers are forked from.

A package that fails to import is skipped, so that the server survives; `providers.load` reports it.
"""

from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points

from tritmark.harness.providers import GROUP

for _module in dict.fromkeys(point.module for point in entry_points(group=GROUP)):
    with suppress(Exception, SystemExit):
        import_module(_module)
