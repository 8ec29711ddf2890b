"""Engines that run whole models, to time them beside tritmark: each in a process of its own, run by run."""
