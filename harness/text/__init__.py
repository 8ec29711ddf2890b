"""Text for output: figures with units, summaries of Records, and safe display of names."""
