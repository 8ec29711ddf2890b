"""Imports packages with kernels in the server that workers are forked from.

It loads the objects that the entry points name, not only their modules: tritmark.kernels imports its variants at the
first use of its provider, and each worker would import them again. A package that fails to import is skipped, so that
the server survives; `providers.load` reports it.
"""

from contextlib import suppress

from tritmark.harness.providers import GROUP, VARIANTS, points

for _point in (*points(GROUP), *points(VARIANTS)):
    with suppress(Exception, SystemExit):
        _point.load()
