"""`tritmark fleet compare`."""
from __future__ import annotations
def compare() -> None:
    """x"""
