"""Records as one tidy table for pandas: a row for each Run, or for each sample."""
