"""CUDA kernels through PyCUDA, or through a simulator without a GPU: the common parts of all launchers."""
