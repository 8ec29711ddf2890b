"""tritmark.harness.league: every kernel on this machine at one place, ours and those of others, beside the best one.

A place is a device, an op, an output dtype, a shape and a number of threads. Times and parts of the ceiling come from
a Record; ratios to the best are taken by turns (turns), or made from what was timed by turns with something that both
were timed with, and each says which.
"""
