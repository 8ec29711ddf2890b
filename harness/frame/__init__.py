"""Records as one tidy table for pandas: one row per Run or per sample."""
