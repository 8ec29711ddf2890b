"""Suggestions for names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable


def closest(name: object, legal: Iterable[str]) -> str | None:
    """The most similar legal name, ignoring case; None if no name is similar or `name` is not text."""
    from difflib import get_close_matches

    if not isinstance(name, str):
        return None
    names = {each.lower(): each for each in reversed(list(legal))}
    found = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return names[found[0]] if found else None


def did_you_mean(name: object, legal: Iterable[str]) -> str:
    """The question "did you mean ...?", or "" if no legal name is similar."""
    close = closest(name, legal)
    return "" if close is None else f"did you mean {close!r}?"


def misspelt(name: object, legal: Iterable[str]) -> str:
    """The name, with the question if it is not legal: for errors that list the legal names themselves."""
    names = list(legal)
    question = "" if name in names else did_you_mean(name, names)
    return f"{name!r} ({question})" if question else repr(name)


def nearest(name: object, legal: Iterable[str], *, among: Iterable[str] | None = None) -> str:
    """The question and all legal names. `among`: the names to suggest, if they differ."""
    names = list(legal)
    question = did_you_mean(name, names if among is None else among)
    return (f"{question} " if question else "") + f"legal: {', '.join(names) or 'none'}"
