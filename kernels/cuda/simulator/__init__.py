"""A GPU that is none: kernels compiled by g++ and run on the CPU, every access to memory checked. For tests; it has
no speed."""

from tritmark.kernels.cuda.simulator.backend import SimulatorBackend

__all__ = ["SimulatorBackend"]
