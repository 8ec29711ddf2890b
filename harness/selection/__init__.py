"""tritmark.harness.selection: measures which variant is the best on this machine, for a class of shapes and a
requirement.

Every candidate runs in its own process, is compared with the op's reference and timed interleaved with the built-in
choice (measure). The result is stored with those of instances (harness.tuned), and Registry.select_best uses it.
"""
