"""The kill rate of the judgement: mutants are planted into a candidate of every op, and the accuracy judgement must
fail each of them.

Fixed mutants. The candidate is a stand-in in Python, which is bound and judged like any kernel, always on the CPU. It
recognizes the workload's data in its memory and writes the outputs of the faulty computation: the reference on inputs
that were read incorrectly, correct outputs that were written incorrectly, or an op's own mutant (`Provider.mutants`).
So mutants are planted into arrays and computations, not into the machine code of kernels.

A mutant is equivalent on a workload if its outputs and effects are correct bit for bit. It is admitted if its error
stays within the op's contract. Both are determined by running the stand-in outside of the judgement (consequence). All
other mutants must be killed.

Drawn mutants (population). Each is a trigger and an effect that do harm on some case that the contract admits (domain,
triggers, effects, drawn_mutants). They are planted into a correct kernel (right, struck) and judged on drawn cases
(oracle).
"""
