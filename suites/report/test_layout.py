"""The report's layout, measured in a browser: nothing overprints or is clipped, a narrow screen shows times, and a page
has an end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("cpu", "gpu", "smoke", "league", "fleet", "monitor", "all")
OPEN = "for (const fold of document.querySelectorAll('details')) fold.open = true"
OVERPRINTS = """() => {
  const found = [];
  const named = (each) => `${each.closest("section")?.id}: ${each.textContent.trim().slice(0, 60)}`;
  for (const cell of document.querySelectorAll("th, td, dd, dt, summary, caption span")) {
    if (!cell.checkVisibility()) continue;
    const own = cell.getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(cell);
    // Texts for screen readers alone are a pixel large.
    const outside = (each) => each.width > 1 && (each.right > own.right + 1 || each.left < own.left - 1);
    if (own.width > 2 && [...range.getClientRects()].some(outside))
      found.push(`${named(cell)} leaves its box`);
  }
  for (const plot of document.querySelectorAll("svg")) {
    if (!plot.checkVisibility()) continue;
    const own = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
    texts.forEach(([text, at], number) => {
      if (at.left < own.left - 1 || at.right > own.right + 1 || at.top < own.top - 1 || at.bottom > own.bottom + 1)
        found.push(`${named(text)} leaves its plot`);
      for (const [other, to] of texts.slice(number + 1))
        if (Math.min(at.right, to.right) - Math.max(at.left, to.left) > 1
            && Math.min(at.bottom, to.bottom) - Math.max(at.top, to.top) > 1)
          found.push(`${named(text)} over ${other.textContent}`);
    });
  }
  return found;
}"""
CLIPPED = """() => [...document.querySelectorAll(".scroll")]
  .filter((each) => each.checkVisibility())
  .filter((each) => each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1)
  .map((each) => `${each.getAttribute("aria-label")}: ${each.scrollWidth} of ${each.clientWidth}`)"""
CROSSED = """() => {
  const found = [];
  for (const head of document.querySelectorAll("svg.chart text.head")) {
    const box = head.getBBox();
    for (const line of head.ownerSVGElement.querySelectorAll(".stroke-grid, .stroke-ink"))
      for (const [, x, from, to] of line.getAttribute("d").matchAll(/M([0-9.]+) ([0-9.]+)V([0-9.]+)/g))
        if (+x > box.x && +x < box.x + box.width && +from < box.y + box.height - 1 && +to > box.y + 1)
          found.push(`a line at ${x} crosses "${head.textContent}"`);
  }
  return found;
}"""
UNSEEN_TIMES = """() => {
  const time = /^[0-9][0-9.,]*\\s(ns|µs|ms|s)( ±.*)?$/;
  const seen = [];
  for (const table of document.querySelectorAll("table")) {
    if (!table.checkVisibility()) continue;
    const times = [...table.tBodies].flatMap((body) => [...body.rows]).flatMap((row) => [...row.cells])
      .filter((cell) => time.test(cell.innerText.trim()));
    const shown = times.some((cell) => cell.getBoundingClientRect().right <= innerWidth);
    if (times.length) seen.push([table.caption.textContent, shown]);
  }
  return seen;
}"""


@contextmanager
def opened(browser: Browser, path: Path, **settings: Any) -> Iterator[Page]:
    """The page in its own window."""
    context = browser.new_context(**settings)
    page = context.new_page()
    page.goto(path.as_uri())
    yield page
    context.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [1280, 768, 400])
def test_nothing_overprints(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    with opened(browser, pages[name], viewport={"width": width, "height": 900}) as page:
        page.evaluate(OPEN)
        assert page.locator("th").count() > 10
        assert page.evaluate(OVERPRINTS) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", NAMES)
def test_no_table_is_clipped_on_a_usual_screen(browser: Browser, pages: dict[str, Path], name: str) -> None:
    with opened(browser, pages[name], viewport={"width": 1280, "height": 900}) as page:
        page.evaluate(OPEN)
        assert page.locator(".scroll").count() > 0
        assert page.evaluate(CLIPPED) == []


@pytest.mark.parametrize("name", ["cpu", "gpu", "smoke"])
def test_no_line_crosses_a_heading_of_a_chart(browser: Browser, pages: dict[str, Path], name: str) -> None:
    with opened(browser, pages[name]) as page:
        page.evaluate(OPEN)
        assert page.locator("svg.chart text.head").count() > 3
        assert page.evaluate(CROSSED) == []


@pytest.mark.parametrize("name", ["cpu", "gpu", "smoke", "league", "monitor"])
def test_a_narrow_screen_shows_times(browser: Browser, pages: dict[str, Path], name: str) -> None:
    with opened(browser, pages[name], viewport={"width": 400, "height": 900}) as page:
        page.evaluate(OPEN)
        seen = page.evaluate(UNSEEN_TIMES)
        assert len(seen) > 5
        assert [caption for caption, shown in seen if not shown] == []


def height(page: Page) -> int:
    """Of the whole page, in CSS pixels."""
    return int(page.evaluate("document.documentElement.scrollHeight"))


@pytest.mark.parametrize("script", [True, False])
def test_a_smoke_report_has_an_end(browser: Browser, pages: dict[str, Path], script: bool) -> None:
    """8,000 pixels are nine screens; with everything open the page has 31,000 and prints 82 pages."""
    with opened(browser, pages["smoke"], viewport={"width": 1280, "height": 900}, java_script_enabled=script) as page:
        assert 2_000 < height(page) < 8_000
        printed = page.pdf(prefer_css_page_size=True)
        assert 1 < len(re.findall(rb"/Type /Page\b", printed)) <= 12
        if script:
            page.get_by_role("button", name="Open all sections").click()
            assert page.locator("details.part:not([open])").count() == 0
            page.get_by_role("button", name="Close all sections").click()
        assert page.locator("details.part[open]").count() == 0


def test_a_link_opens_its_section(browser: Browser, pages: dict[str, Path]) -> None:
    for script in (True, False):
        with opened(browser, pages["smoke"], java_script_enabled=script) as page:
            assert not page.locator("#memory table").first.is_visible()
            page.locator("nav a", has_text="Memory").click()
            page.wait_for_selector("#memory table", state="visible")


def test_what_could_not_be_run_is_one_line(browser: Browser, pages: dict[str, Path]) -> None:
    with opened(browser, pages["smoke"]) as page:
        assert page.locator("#verdicts summary", has_text="39 kernels").count() == 1
        named = page.locator("#verdicts :text('absent_')")
        assert named.count() == 39
        assert not any(named.evaluate_all("all => all.map((each) => each.checkVisibility())"))


def test_words_have_their_blanks(browser: Browser, pages: dict[str, Path]) -> None:
    """A sentence that ends where a template's block ends ran into the next one."""
    with opened(browser, pages["smoke"]) as page:
        page.evaluate(OPEN)
        prose = page.evaluate("[...document.querySelectorAll('main p, main li')].map((each) => each.innerText)")
    assert len(prose) > 30
    # Names contain points: only a lower-case letter before and a capital after it mark the end of a sentence.
    assert [text for text in prose if re.search(r"[a-z)][.:;,][A-Z][a-z]", text)] == []
