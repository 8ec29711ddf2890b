"""CUDA kernels through PyCUDA, or through a simulator where there is no GPU: what every launcher shares."""
