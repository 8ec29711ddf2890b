"""tritmark.harness.selection: which of several variants is the best on this machine, for a class of shapes and what is
required of it.

Every candidate is judged right by the op's reference in a process of its own and timed by turns with the built-in
choice (measure); what is found is kept where those of instances are (harness.tuned), and Registry.select_best obeys it.
"""
