"""A separate package that extends tritmark: the format base3, and kernels of ternary_matmul for it, in C and in CUDA.

tritmark finds PROVIDER by the entry point in pyproject.toml. The import must be fast and must not touch a device.
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
"""The contributions of this package, as `tritmark list` shows them. `workloads` is the package with base3.toml, for
`tritmark run --suite base3`; `functions` is the prefix of its device functions, by which `tritmark verify` recognizes
them."""
