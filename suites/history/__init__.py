"""Benchmarks that asv follows over the commits."""
