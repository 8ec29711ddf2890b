"""Arrays in the memory of other libraries and of other GPUs."""
