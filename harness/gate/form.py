"""The forms that a result can be told in."""

from __future__ import annotations

from enum import StrEnum


class Form(StrEnum):
    """How a result is told."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    """Workflow commands, and a table for the job's summary."""
    JUNIT = "junit"
