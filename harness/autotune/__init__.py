"""tritmark.harness.autotune: measures which of a variant's instances is the fastest on this machine, for given shapes.

Every instance is compared with the op's reference and timed interleaved with the built-in choice (tasks, in the
variant's process). An instance that is faster again in a second measurement is stored for later launches (tune, keep).
"""
