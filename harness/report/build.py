"""Puts the sections together into one file that needs nothing but itself: no network, and no script for anything that is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritmark.harness.errors import RecordError, UsageError
from tritmark.harness.record import Record
from tritmark.harness.report import (
    cross,
    environment,
    gpu,
    groups,
    layers,
    machine,
    memory,
    method,
    repeat,
    roofline,
    summary,
    temperature,
    verdicts,
)
from tritmark.harness.report.section import Section

if TYPE_CHECKING:
    from jinja2 import Environment

SECTIONS: tuple[Section, ...] = (
    summary.SECTION,
    verdicts.SECTION,
    cross.SECTION,
    memory.SECTION,
    layers.SECTION,
    gpu.SECTION,
    roofline.SECTION,
    temperature.SECTION,
    repeat.SECTION,
    machine.SECTION,
    environment.SECTION,
    method.SECTION,
)
"""Every section, in the order of the page."""

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def build(record: Record, folder: Path) -> Path:
    """Write the report of `record` to `folder`/<record id>.html, whole or not at all, and return its path.

    `folder` is made where it is missing. The same Record gives the same bytes. Raises RecordError where the Record's id cannot be a file's
    name, and OSError where the file cannot be written.
    """
    if not _FILE_NAME.fullmatch(record.id):
        legal = "up to 200 letters, digits, '.', '_' and '-', a letter or digit first"
        raise RecordError(path=str(folder), found=f"record id {record.id!r}", legal=legal)
    from tritmark.harness.store import write_atomically

    page = render(record)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.id}.html"
    try:
        write_atomically(path, page)
    except UsageError as error:
        # The Record of a finished run stands without its page: the caller has to be able to tell a full disk from bad usage.
        raise error.__cause__ or error from None
    return path


def render(record: Record) -> str:
    """The report of `record` as one HTML document."""
    from markupsafe import Markup

    templates = _templates()
    parts = []
    for section in SECTIONS:
        context = section.context(record)
        if context is not None:
            body = templates.get_template(section.template).render(record=record, **context)
            parts.append({"id": section.id, "title": section.title, "body": Markup(body)})
    style, script = (_source(templates, name) for name in ("style.css", "script.js"))
    page = templates.get_template("page.html")
    return page.render(
        record=record,
        parts=parts,
        status=summary.status(record),
        headline=summary.headline(record),
        simulated=groups.simulated(record),
        style=Markup(style),
        script=Markup(script),
        style_hash=_policy_hash(style),
        script_hash=_policy_hash(script),
    )


def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from tritmark.harness.report import commands, text, units

    def harmless(value: Any) -> Any:
        return text.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    templates = Environment(
        loader=PackageLoader("tritmark.harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update({name: getattr(units, name) for name in units.FILTERS})
    templates.filters.update(iso=text.isolated, breakable=text.breakable, long=text.long, part=groups.part)
    templates.globals.update(groups=groups, commands=commands, dash=units.NONE)
    return templates


def _source(templates: Environment, name: str) -> str:
    loader = templates.loader
    assert loader is not None
    return loader.get_source(templates, name)[0]


def _policy_hash(source: str) -> str:
    from base64 import b64encode
    from hashlib import sha256

    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"
