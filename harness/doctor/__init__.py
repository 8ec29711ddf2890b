"""Checks whether this machine is fit for measuring. Each check states what it found, what it means, and the fix."""
