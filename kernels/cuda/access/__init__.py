"""Access patterns of kernels in device and shared memory, from traces of the simulator."""
