"""The machine room: what the host is, what runs on it, and what it can do at most. Importing it is cheap."""

from tritmark.harness.machine.ceilings import measure_ceilings
from tritmark.harness.machine.facts import machine_facts
from tritmark.harness.machine.versions import environment

__all__ = ["environment", "machine_facts", "measure_ceilings"]
