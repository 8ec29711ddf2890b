"""Measurement: buffers, clocks, stopping rules, and interleaved comparison."""
