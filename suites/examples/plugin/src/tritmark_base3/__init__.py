"""A package of its own that adds to tritmark: the format base3, and kernels of ternary_matmul that read it, in C and in
CUDA.

tritmark finds PROVIDER by the entry point in pyproject.toml. Importing this must be quick and must not touch a device.
"""

from tritmark.harness.spec import Provider
from tritmark_base3 import cpu, cuda
from tritmark_base3.format import BASE3

PROVIDER = Provider(
    ops=(),
    devices=(),
    formats={BASE3.name: BASE3},
    variants=(*cpu.VARIANTS, *cuda.VARIANTS),
    workloads="tritmark_base3",
    functions=("base3_gpu_",),
)
"""What `tritmark list` shows of this package. `workloads` is the package with base3.toml, which `tritmark run
--suite base3` takes; `functions` is how the names of its device functions begin, by which `tritmark verify` knows
them."""
