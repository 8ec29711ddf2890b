"""Judges and measures kernels, one Run after the other, for `tritmark run` and `tritmark check`."""
