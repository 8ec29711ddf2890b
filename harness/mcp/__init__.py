"""The server for agents, by the Model Context Protocol: tools over the commands of tritmark."""

from __future__ import annotations
