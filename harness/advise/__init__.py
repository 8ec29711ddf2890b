"""tritmark.harness.advise: proposals of what to change next, with evidence and a predicted gain. One file per rule in
`rules/`."""
