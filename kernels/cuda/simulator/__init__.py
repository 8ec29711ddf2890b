"""A simulated GPU: kernels are compiled by g++ and run on the CPU with every memory access checked. For tests; it has
no speed."""

from tritmark.kernels.cuda.simulator.backend import SimulatorBackend

__all__ = ["SimulatorBackend"]
