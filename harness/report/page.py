"""Combine the sections into one self-contained file: it needs no network, and can be read without scripts."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritmark.harness.errors import RecordError, UsageError
from tritmark.harness.record import Record
from tritmark.harness.report import (
    access,
    batch,
    code,
    compare,
    cross,
    efficiency,
    environment,
    errors,
    gpu,
    graph,
    heatmap,
    layers,
    machine,
    memory,
    method,
    models,
    past,
    peers,
    proposals,
    repeat,
    roofline,
    samples,
    scaling,
    summary,
    temperature,
    verdicts,
)
from tritmark.harness.report.section import NOTHING, PageContext, Section
from tritmark.harness.text import groups
from tritmark.harness.text.distrust import SUFFIX

if TYPE_CHECKING:
    from jinja2 import Environment

SECTIONS: tuple[Section, ...] = (
    summary.SECTION,
    proposals.SECTION,
    verdicts.SECTION,
    compare.SECTION,
    errors.SECTION,
    cross.SECTION,
    peers.SECTION,
    memory.SECTION,
    layers.SECTION,
    gpu.SECTION,
    graph.SECTION,
    roofline.SECTION,
    heatmap.SECTION,
    temperature.SECTION,
    scaling.SECTION,
    efficiency.SECTION,
    batch.SECTION,
    models.SECTION,
    code.SECTION,
    access.SECTION,
    past.SECTION,
    samples.SECTION,
    repeat.SECTION,
    machine.SECTION,
    environment.SECTION,
    method.SECTION,
)
"""Every section, in the order of the page."""

LIMIT = 2_000_000
"""Largest size of a page in bytes. Raw samples that do not fit stay in the Record only."""
_MARGIN = 40_000
"""Bytes for the page around its sections: style, script, head."""
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def build(record: Record, folder: Path, given: PageContext = NOTHING) -> Path:
    """Write the report of `record` to `folder`/<record id>.html atomically and return its path.

    `given` is what the page shows beside the Record. The report of a Record that is not believed has another name, so
    it never replaces the other one. A missing `folder` is created. Equal arguments give equal bytes. Raises RecordError
    if the id of the Record is not a legal file name, and OSError if the file cannot be written.
    """
    return put(folder, f"{page_name(record.id, folder, given.distrust)}.html", render(record, given))


def page_name(id: str, folder: Path, distrust: str) -> str:
    """The file name of a Record's pages in `folder`, without the suffix. Raises RecordError as `named` does."""
    return f"{named(id, folder)}{SUFFIX if distrust else ''}"


def named(id: str, folder: Path) -> str:
    """The id of a Record, checked to be a legal file name. Raises RecordError if it is not."""
    if not _FILE_NAME.fullmatch(id):
        legal = "up to 200 letters, digits, '.', '_' and '-', beginning with a letter or digit"
        raise RecordError(path=str(folder), found=f"record id {id!r}", legal=legal)
    return id


def put(folder: Path, name: str, page: str) -> Path:
    """Write a page atomically and return its path. Raises OSError if it cannot be written."""
    from tritmark.harness.store import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    try:
        write_atomically(path, page)
    except UsageError as error:
        # The caller must be able to distinguish a full disk from bad usage, as the Record is complete without its page.
        raise error.__cause__ or error from None
    return path


def render(record: Record, given: PageContext = NOTHING) -> str:
    """The report of `record` as one HTML document."""
    from markupsafe import Markup

    templates = _templates()
    bodies: dict[str, Markup] = {}
    # Last, because raw samples get the bytes that the other sections leave.
    for section in sorted(SECTIONS, key=lambda each: each is samples.SECTION):
        if section is samples.SECTION:
            given = replace(given, room=LIMIT - _MARGIN - sum(len(body.encode()) for body in bodies.values()))
        context = section.variables(record, given)
        if context is not None:
            bodies[section.id] = Markup(templates.get_template(section.template).render(record=record, **context))
    parts = [
        {"id": each.id, "title": each.title, "about": each.about, "body": bodies[each.id]}
        for each in SECTIONS
        if each.id in bodies
    ]
    return document(
        "page.html",
        record=record,
        parts=parts,
        status=summary.status(record),
        headline=summary.headline(record),
        simulated=groups.simulated(record),
        distrust=given.distrust,
    )


def document(template: str, *, distrust: str = "", **variables: Any) -> str:
    """Render a template that extends frame.html, with style, script and their hashes. `distrust` is shown below the
    title."""
    from markupsafe import Markup

    templates = _templates()
    style, script = map(source, ("style.css", "script.js"))
    return templates.get_template(template).render(
        style=Markup(style),
        script=Markup(script),
        style_hash=_policy_hash(style),
        script_hash=_policy_hash(script),
        distrust=distrust,
        **variables,
    )


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from tritmark.harness.text import commands, units, visible

    def harmless(value: Any) -> Any:
        return visible.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    templates = Environment(
        loader=PackageLoader("tritmark.harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update({name: getattr(units, name) for name in units.FILTERS})
    templates.filters.update(
        iso=visible.isolated, breakable=visible.breakable, long=visible.long, part=groups.part, shell=visible.quoted
    )
    templates.globals.update(groups=groups, commands=commands, dash=units.NONE)
    return templates


def source(name: str) -> str:
    """The text of a file of templates/."""
    templates = _templates()
    loader = templates.loader
    assert loader is not None
    return loader.get_source(templates, name)[0]


def _policy_hash(source: str) -> str:
    from base64 import b64encode
    from hashlib import sha256

    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"
