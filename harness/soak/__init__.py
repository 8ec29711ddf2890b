"""tritmark.harness.soak: does the harness itself hold? Random Runs for as long as it is told, while their processes
are shot at."""
