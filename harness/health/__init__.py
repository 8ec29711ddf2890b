"""Checks whether this machine and its GPUs are healthy now, and since when. `tritmark doctor` checks whether they are
fit for measuring."""
