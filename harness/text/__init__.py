"""Figures and foreign text, made fit for people: units, and names that may hold anything."""
