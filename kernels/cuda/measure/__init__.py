"""The GPU's clocks and ceilings."""
