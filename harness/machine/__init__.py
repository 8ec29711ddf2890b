"""The machine: what the host and its GPUs are, as the system tells it. Importing it is cheap."""
