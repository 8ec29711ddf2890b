"""tritmark.harness.soak: tests the harness itself with random Runs for a given time, while signals end their
processes."""
