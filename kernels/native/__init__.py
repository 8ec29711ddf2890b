"""tritmark.kernels.native: the CPU as a device: its features, native code, threads and memory."""
