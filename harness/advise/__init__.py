"""tritmark.harness.advise: what to change next, from what evidence, and what that should bring. One rule a file, in
`rules/`."""
