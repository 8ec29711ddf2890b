"""tritmark.harness.autotune: which of a variant's instances is the fastest on this machine, for shapes that are asked
for.

Every instance is judged right by the op's reference and timed by turns with the built-in choice (tasks, in the
variant's process); what is measured to be faster once more, on its own, is kept for who launches (tune, keep).
"""
