"""What became slower over this project's commits, from what asv measured (see suites/history). Importing it is
cheap."""
