"""Runs on many machines, spread over a Dask cluster (extra `fleet`), and their comparison."""

from __future__ import annotations
