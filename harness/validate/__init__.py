"""Judging: input families, guards, accuracy and performance verdicts."""
