"""What to offer for a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def closest(name: object, legal: Iterable[str]) -> str | None:
    """The legal name that is most like it, in whatever case; None where none is, and for what is no text at all."""
    from difflib import get_close_matches

    if not isinstance(name, str):
        return None
    names = {each.lower(): each for each in reversed(list(legal))}
    found = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return names[found[0]] if found else None


def did_you_mean(name: object, legal: Iterable[str]) -> str:
    """The question, or "" where no legal name is like it."""
    close = closest(name, legal)
    return "" if close is None else f"did you mean {close!r}?"


def misspelt(name: object, legal: Iterable[str]) -> str:
    """The name, and the question where it is not legal: for errors that list by themselves what is."""
    names = list(legal)
    question = "" if name in names else did_you_mean(name, names)
    return f"{name!r} ({question})" if question else repr(name)


def nearest(name: object, legal: Iterable[str], *, among: Iterable[str] | None = None) -> str:
    """The question, and all that is legal. `among`: further spellings that may be meant."""
    names = list(legal)
    question = did_you_mean(name, names if among is None else among)
    return (f"{question} " if question else "") + f"legal: {', '.join(names) or 'none'}"
