"""Makes text of a Record harmless and visible: names may hold control characters, right-to-left marks or markup."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markupsafe import Markup

_PLAIN_SHELL = re.compile(r"[\x20-\x7e]*")
_BREAKS = re.compile(r"(?<=[./_])(?=\w)")
_LONGEST_LABEL = 34
_LONGEST_SENTENCE = 200


def visible(text: str) -> str:
    r"""The text with unprintable characters (ANSI escapes, direction marks, surrogates) as \x1b or \u202e, except
    newlines."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)


def sentence(text: str) -> str:
    """The first sentence of the text, at most 200 characters."""
    first = re.split(r"[.;]\s|\n", text.strip(), maxsplit=1)[0].rstrip(".;")
    return first if len(first) <= _LONGEST_SENTENCE else f"{first[: _LONGEST_SENTENCE - 3]}..."


def isolated(value: Any) -> Markup:
    """Markup of the text. <bdi> keeps right-to-left letters from reordering adjacent text; ASCII needs none."""
    from markupsafe import escape

    return _isolated(escape(visible(str(value))))


def breakable(value: Any) -> Markup:
    """The isolated text, which a narrow column may break after a dot, slash or underscore."""
    from markupsafe import Markup, escape

    return _isolated(Markup("<wbr>").join(escape(part) for part in _BREAKS.split(visible(str(value)))))


def long(value: Any) -> Markup:
    """The class of a table cell that must wrap; other cells of the dense tables stay on one line."""
    from markupsafe import Markup

    return Markup(' class="long"') if len(visible(str(value))) > _LONGEST_LABEL else Markup("")


def _isolated(text: Markup) -> Markup:
    from markupsafe import Markup

    return text if text.isascii() else Markup("<bdi>{}</bdi>").format(text)


def label(text: str, longest: int = _LONGEST_LABEL) -> str:
    """ASCII of at most `longest` characters for a plot, whose text is laid out without the reader's fonts."""
    plain = "".join(char if char.isascii() and char.isprintable() else _escaped(char) for char in text)
    return plain if len(plain) <= longest else f"{plain[: longest - 3]}..."


def quoted(argument: str) -> str:
    """The argument as one word of a bash command that is safe to paste: a control or non-ASCII character is written
    as an escape."""
    if _PLAIN_SHELL.fullmatch(argument):
        return shlex.quote(argument)
    return "$'" + "".join(_in_dollar_quotes(byte) for byte in argument.encode("utf-8", "surrogateescape")) + "'"


def _in_dollar_quotes(byte: int) -> str:
    char = chr(byte)
    if char in "\\'":
        return f"\\{char}"
    return char if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
