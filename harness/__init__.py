"""tritmark.harness measures and judges kernels. It names no op and imports neither kernels nor native code."""
