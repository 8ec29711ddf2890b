"""Judging and measuring kernels, one Run after the other: what `tritmark run` and `tritmark check` do."""
