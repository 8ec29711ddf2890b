"""Limits NumPy's products to one thread. Imported last by the server that workers are forked from.

OpenBLAS restarts its threads in a forked process if it may use several, so the limit is set before the fork.
Libraries that are loaded later, such as SciPy's OpenBLAS, read it from the environment; see serve.
"""

from __future__ import annotations

import numpy.linalg  # noqa: F401 (loads the BLAS library)
from threadpoolctl import threadpool_limits

threadpool_limits(1, user_api="blas")
