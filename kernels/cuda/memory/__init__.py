"""Device memory: its pool, copies, and counts of both."""
