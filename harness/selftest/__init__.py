"""The oracle's kill rate: mutants are planted into a candidate of every op, and the accuracy judgement has to fail each
of them.

The candidate is a stand-in in Python, bound and judged like any kernel, on the CPU whichever device the key's kernels
are for. It knows the data of the workload, recognizes in its memory which set of it is there, and writes what the
faulty computation gives: the reference on inputs that were read wrongly, right outputs that were written wrongly, or an
op's own mutant (`Provider.mutants`). So mutants are planted into arrays and into whole computations, not into the
machine code of the kernels.

A mutant that a workload's data does not show is equivalent there: the stand-in's outputs and all its effects are bit
for bit the right ones, which is found by running it beside the judgement (see consequence). One that stays within the
error that the op's contract admits is admitted there. All others have to be killed.

Beside these fixed mutants there are drawn ones (population): a trigger and an effect, drawn so that they do harm on
some case that the contract admits (domain, triggers, effects, drawn_mutants), in a right kernel (right, struck) that is
judged on drawn cases (oracle).
"""
