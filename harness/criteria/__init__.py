"""tritmark.harness.criteria: judges the success criteria of the design documents on this machine.

The criteria are data: a TOML file names the op, the sizes and the thresholds. Each criterion is PASS, FAIL or NOT RUN,
with the figure that decided it.
"""
