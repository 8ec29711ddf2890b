"""Imports what packages with kernels bring, in the server that workers are forked from.

What does not import is left out, as `providers.load` leaves it out and says so: the server must not end by it.
"""

from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points

from tritmark.harness.providers import GROUP

for _module in dict.fromkeys(point.module for point in entry_points(group=GROUP)):
    with suppress(Exception, SystemExit):
        import_module(_module)
