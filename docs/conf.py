"""Sphinx: `tox -e docs`, or `sphinx-build -W --keep-going -b html docs OUT` with `pip install '.[docs]'`."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_parser.slugs import github_slugify
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))

import reference_pages  # noqa: E402

project = "tritmark"
author = "the authors of tritmark"
copyright = author
version = release = installed_version("tritmark")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_heading_slug_func = "github"
exclude_patterns = ["_build"]

# PyTorch is large, and only its names are needed.
autodoc_mock_imports = ["torch"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# In docstrings `name` is code, as in Markdown.
default_role = "code"
# Options begin with two hyphens, which are no dash.
smartquotes = False
add_module_names = False
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = "tritmark"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False

_LOG = logging.getLogger(__name__)
# A glob of the index may match no page; Sphinx gives this warning no type by which suppress_warnings could name it.
logging.getLogger("sphinx.directives.other").logger.addFilter(
    lambda record: getattr(record, "subtype", "") != "empty_glob"
)


def repository() -> str:
    """The address of the repository: that of `project.urls` in pyproject.toml, or of the workflow that runs; "" if
    there is none."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    server, name = os.environ.get("GITHUB_SERVER_URL", ""), os.environ.get("GITHUB_REPOSITORY", "")
    return str(urls.get("Repository") or (f"{server}/{name}" if server and name else "")).rstrip("/")


class RepositoryLinks(SphinxTransform):
    """Links to files outside docs/ work on GitHub; here they lead to the repository, or are text if its address is not
    known. A file that does not exist is a warning."""

    default_priority = 5

    def apply(self, **_: Any) -> None:
        """Replace each such link of the page."""
        for node in [
            *self.document.findall(addnodes.pending_xref),
            *self.document.findall(addnodes.download_reference),
        ]:
            target, _, anchor = str(node.get("reftarget", "")).partition("#")
            if node.get("reftype") != "myst" or not target:
                continue
            if node.get("refdomain") == "doc":  # a page in Markdown, whose target has neither suffix nor anchor
                target, anchor = f"{target}.md", node.get("reftargetid") or ""
            path = (Path(self.env.doc2path(self.env.docname)).parent / target).resolve()
            if path.is_relative_to(DOCS) or not path.is_relative_to(ROOT):
                continue
            if problem := _problem(path, anchor):
                _LOG.warning("%s: %s", target, problem, location=node)
            node.replace_self(self._link(path, anchor, node))

    def _link(self, path: Path, anchor: str, node: nodes.Element) -> nodes.Element:
        name = path.relative_to(ROOT).as_posix()
        if not (base := repository()):
            return nodes.inline("", "", *node.children[0].children, reftitle=name)
        kind = "tree" if path.is_dir() else "blob"
        address = f"{base}/{kind}/main/{name}" + (f"#{anchor}" if anchor else "")
        return nodes.reference("", "", *node.children, refuri=address, internal=False)


def _problem(path: Path, anchor: str) -> str:
    """Why a link to a file of the repository leads nowhere; "" if it does not."""
    if not path.exists():
        return "no such file in the repository"
    if anchor and path.suffix == ".md":
        titles = re.findall(r"^#+ +(.*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if anchor not in map(github_slugify, titles):
            return f"no such heading: {anchor}"
    return ""


def _escape(_app: Sphinx, _kind: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Have reStructuredText take |x| in a docstring for what it is."""
    lines[:] = [line.replace("|", "\\|") for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Generate the reference and register the transform."""
    reference_pages.write()
    app.add_transform(RepositoryLinks)
    app.connect("autodoc-process-docstring", _escape)
    return {"parallel_read_safe": True}
