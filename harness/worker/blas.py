"""Imported last by the server that workers are forked from: in each of them NumPy's products take one thread, until
more are allowed.

OpenBLAS starts its threads anew in a forked process where it may use several of them, and when it is told how many: so
this has to be said before. Libraries that are loaded later, as SciPy's own OpenBLAS is, are told by the environment;
see serve.
"""

from __future__ import annotations

import numpy.linalg  # noqa: F401 (what it links is what is looked at)
from threadpoolctl import threadpool_limits

threadpool_limits(1, user_api="blas")
