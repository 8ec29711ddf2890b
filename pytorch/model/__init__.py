"""Whole models of transformers on tritmark's kernels: judged, and timed beside transformers itself."""
