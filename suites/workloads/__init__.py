"""tritmark.workloads: the named suites, as TOML files that `tritmark run --suite NAME` reads."""
