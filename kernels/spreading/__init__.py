"""tritmark.kernels.spreading: one function for many tensors, on several GPUs or on the threads of the CPU."""
