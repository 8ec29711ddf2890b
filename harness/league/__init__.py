"""tritmark.harness.league: all kernels and peers for the same work, side by side with the best one.

The same work: device, op, output dtype, shape and thread count. Times and percentages of the ceiling come from a
Record. Ratios to the best are interleaved (turns), or follow from two ratios that were interleaved with the same code.
Each ratio states its basis.
"""
