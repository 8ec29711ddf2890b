"""The report in a browser: quiet, offline, reachable by keyboard, readable without script, on a narrow screen and on
paper."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tritmark.harness.record import Record

NAMES = ("cpu", "gpu", "monitor", "all", "site")
FOCUSABLE = "a[href], button, input, summary, [tabindex='0']"


@contextmanager
def opened(browser: Browser, path: Path, *, hash: str = "", **settings: Any) -> Iterator[Page]:
    """The page, which must not write to the console, request anything, or open a dialogue."""
    context = browser.new_context(**settings)
    page = context.new_page()
    heard: list[str] = []
    page.on("console", lambda message: heard.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("dialog", lambda dialog: heard.append(f"dialogue: {dialog.message}"))
    page.on("request", lambda request: heard.append(f"request: {request.url[:200]}"))
    address = path.as_uri()
    page.goto(address + hash)
    yield page
    context.close()
    assert [
        each for each in heard if each not in {f"request: {address}", f"request: {address}{hash}", "request: data:,"}
    ] == []


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("cpu", "light"),
        ("cpu", "dark"),
        ("gpu", "light"),
        ("monitor", "light"),
        ("monitor", "dark"),
        ("all", "light"),
        ("all", "dark"),
        ("site", "light"),
        ("site", "dark"),
    ],
)
def test_axe_finds_nothing_serious(browser: Browser, pages: dict[str, Path], name: str, scheme: str) -> None:
    import axe_playwright_python

    axe = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    with opened(browser, pages[name], color_scheme=scheme) as page:
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        # All rows are alike, and axe takes a millisecond for each word.
        page.evaluate("for (const row of document.querySelectorAll('tbody > tr:nth-child(n + 4)')) row.remove()")
        page.evaluate(axe)
        found = page.evaluate(
            "axe.run({ resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', "
            "'best-practice'] })"
        )
    bad = [
        f"{each['id']} ({each['impact']}): {[node['html'][:160] for node in each['nodes'][:3]]}"
        for each in found["violations"]
        if each["impact"] in {"serious", "critical"}
    ]
    assert bad == []


@pytest.mark.parametrize("name", ["cpu", "monitor", "all"])
def test_keyboard_reaches_everything_and_each_chart_is_one_stop(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    with opened(browser, pages[name]) as page:
        seen = page.evaluate(
            f"""() => {{
                const all = [...document.querySelectorAll("{FOCUSABLE}")].filter((each) => each.checkVisibility());
                all.forEach((each, number) => each.dataset.stop = number);
                return all.length;
            }}"""
        )
        page.evaluate(
            "window.stops = []; addEventListener('focusin', (event) => stops.push(event.target.dataset.stop))"
        )
        for _ in range(seen + 5):
            page.keyboard.press("Tab")
        assert set(page.evaluate("window.stops")) == {str(number) for number in range(seen)}
        charts = page.locator("svg[role=img]")
        for number in range(charts.count()):
            assert charts.nth(number).evaluate(f'each => each.querySelectorAll("{FOCUSABLE}").length') == 0


@pytest.mark.parametrize(("name", "place"), [("cpu", "#baseline"), ("monitor", "#trends figure:first-child")])
def test_arrow_keys_read_the_marks_of_a_chart(browser: Browser, pages: dict[str, Path], name: str, place: str) -> None:
    with opened(browser, pages[name]) as page:
        chart = page.locator(f"{place} svg")
        chart.focus()
        titles = chart.locator("title").all_text_contents()
        assert len(titles) > 3
        said = page.locator(f"{place} .said")
        for title in titles[:3]:
            page.keyboard.press("ArrowDown")
            assert said.text_content() == title
        page.keyboard.press("End")
        assert said.text_content() == titles[-1]
        page.keyboard.press("Escape")
        assert said.text_content() == ""


def shown(page: Page) -> str:
    """The visible text of the page, without the texts of the filter and the plots."""
    return str(page.evaluate("document.querySelector('main').innerText"))


@pytest.mark.parametrize(("name", "folds"), [("cpu", "#next details"), ("monitor", "#trends details")])
def test_all_can_be_read_without_script(browser: Browser, pages: dict[str, Path], name: str, folds: str) -> None:
    with opened(browser, pages[name]) as page:
        tables, with_script = page.locator("table").count(), page.locator("section").count()
    with opened(browser, pages[name], java_script_enabled=False) as page:
        assert page.locator("table").count() == tables
        assert page.locator("section").count() == with_script
        assert page.locator("input, button").count() == 0, "controls without a function"
        fold = page.locator(folds).nth(3)
        assert not fold.locator("table").is_visible()
        fold.locator("summary").click()
        assert fold.locator("table").is_visible()
        for plot in page.locator("section:has(svg)").all():
            assert plot.locator("table").count() > 0, "a plot without its table"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("width", "script"), [(320, True), (400, True), (400, False)])
def test_narrow_screens_do_not_scroll_sideways(
    browser: Browser, pages: dict[str, Path], name: str, width: int, script: bool
) -> None:
    with opened(browser, pages[name], viewport={"width": width, "height": 800}, java_script_enabled=script) as page:
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


VISIBLE = "all => all.map((each) => each.checkVisibility())"


@pytest.mark.parametrize("script", [True, False])
def test_paper_has_what_is_open_and_all_that_is_folded_in_it(
    browser: Browser, pages: dict[str, Path], script: bool
) -> None:
    with opened(browser, pages["cpu"], java_script_enabled=script) as page:
        folds = page.locator("details:not([open], .part, .many, .many details, .part details) > :not(summary)")
        closed = page.locator("details.part:not([open]) > section")
        assert folds.count() > 3
        assert closed.count() > 8
        assert not any(folds.evaluate_all(VISIBLE)), "folded away on the screen"
        page.emulate_media(media="print")
        assert all(folds.evaluate_all(VISIBLE)), "folded away on paper"
        assert not any(closed.evaluate_all(VISIBLE)), "closed sections fill 70 pages"
        for summary in page.locator("details.part > summary").all():
            summary.click()
        assert all(page.locator("details.part > section").evaluate_all(VISIBLE))
        assert page.locator("nav").is_hidden()
        assert page.locator("main button:not(th button)").evaluate_all(
            "all => all.every((each) => !each.checkVisibility())"
        )
        assert page.pdf(prefer_css_page_size=True)[:5] == b"%PDF-"


def test_the_monitor_on_paper_has_all_but_the_tables_of_plots(browser: Browser, pages: dict[str, Path]) -> None:
    with opened(browser, pages["monitor"]) as page:
        page.emulate_media(media="print")
        for place in ("#kernels table", "#trends svg", "#health table", "#advice table", "#sessions table"):
            assert page.locator(place).first.is_visible(), place
        assert page.locator("details.many > .scroll").count() > 5
        assert not any(page.locator("details.many > .scroll").evaluate_all(VISIBLE))
        assert page.locator("nav, .tools").evaluate_all("all => all.every((each) => !each.checkVisibility())")
        printed = page.pdf(prefer_css_page_size=True)
    assert 1 < len(re.findall(rb"/Type /Page\b", printed)) <= 6


def test_the_monitor_is_filtered_and_sorted(browser: Browser, pages: dict[str, Path]) -> None:
    from playwright.sync_api import expect

    rows = "#kernels tbody tr"
    with opened(browser, pages["monitor"]) as page:
        before = page.locator(rows).count()
        head = page.locator("#kernels th button", has_text="Calls")
        head.click()
        head.click()
        assert page.locator("#kernels th[aria-sort=descending]").count() == 1
        calls = page.locator("#kernels tbody tr > td:nth-child(7)").all_text_contents()
        assert calls[0].endswith("M")
        assert calls[-1] == "0"
        page.get_by_label("Filter the tables").fill("K=6912")
        expect(page).to_have_url(re.compile("~f=K"))
        kept = page.locator(f"{rows}:visible").all_text_contents()
        assert 0 < len(kept) < before
        assert all("K=6912" in text for text in kept)


def test_an_option_of_a_command_is_not_broken(browser: Browser, pages: dict[str, Path]) -> None:
    """Browsers break lines after hyphens."""
    with opened(browser, pages["monitor"], viewport={"width": 1280, "height": 900}) as page:
        options = page.locator("#advice code span", has_text=re.compile("^--"))
        assert options.count() > 0
        assert options.evaluate_all("all => all.every((each) => each.getClientRects().length === 1)")
        assert options.evaluate_all("all => all.every((each) => each.offsetHeight < 30)")


def test_filter_and_order_stay_in_the_address(browser: Browser, pages: dict[str, Path]) -> None:
    from playwright.sync_api import expect

    rows = "#verdicts > .scroll tbody tr"
    with opened(browser, pages["cpu"]) as page:
        before = page.locator(rows).count()
        page.get_by_label("Filter the tables").fill("ternary_matmul avx512")
        expect(page).to_have_url(re.compile("~f=ternary_matmul"))
        kept = page.locator(f"{rows}:visible").all_text_contents()
        assert 0 < len(kept) < before
        assert all("ternary_matmul" in text and "avx512" in text for text in kept)
        head = page.locator("#verdicts > .scroll th button", has_text="Elements")
        head.click()
        head.click()
        assert page.locator("#verdicts th[aria-sort=descending]").count() == 1
        order = page.locator(rows).all_text_contents()
        page.locator("nav a", has_text="Memory" if page.locator("#memory").count() else "Machine").click()
        expect(page).to_have_url(re.compile("#m[a-z]+~f="))
        hash = page.evaluate("location.hash")
    with opened(browser, pages["cpu"], hash=hash) as page:
        assert page.get_by_label("Filter the tables").input_value() == "ternary_matmul avx512"
        assert page.locator(rows).all_text_contents() == order
        assert page.locator(f"{rows}:visible").count() == len(kept)


def test_the_public_league_is_filtered_by_its_columns(browser: Browser, pages: dict[str, Path]) -> None:
    from playwright.sync_api import expect

    rows = "#figures tbody tr"
    with opened(browser, pages["site"]) as page:
        every = page.locator(rows).count()
        page.get_by_label("Machine", exact=True).select_option(index=1)
        page.get_by_label("Format", exact=True).select_option("tile64")
        kept = page.locator(f"{rows}:visible").all_text_contents()
        assert 0 < len(kept) < every
        machine = str(page.get_by_label("Machine", exact=True).input_value())
        assert all(machine in text and "tile64" in text for text in kept)
        expect(page).to_have_url(re.compile("~t="))
        hash = page.evaluate("location.hash")
        page.get_by_label("Filter the tables").fill("no such kernel")
        expect(page.locator(f"{rows}:visible")).to_have_count(0)
    with opened(browser, pages["site"], hash=hash) as page:
        assert page.locator(f"{rows}:visible").count() == len(kept)
    with opened(browser, pages["site"], java_script_enabled=False) as page:
        assert page.locator(f"{rows}:visible").count() == every
        assert page.locator("input, select, button").count() == 0, "controls without a function"
        assert "1 file refused" in str(page.locator("h1").text_content())


def test_figures_sort_by_size_whatever_the_unit(browser: Browser, pages: dict[str, Path]) -> None:
    units = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}
    with opened(browser, pages["cpu"]) as page:
        page.locator("#baseline th button", has_text="Now").click()
        place = page.locator("#baseline thead th").all_text_contents().index("Now") + 1
        column = page.locator(f"#baseline tbody tr > :nth-child({place})")
        shown = [text.split() for text in column.all_text_contents()]
    times = [float(number.replace(",", "")) * units[unit] for number, unit in shown]
    assert len(times) > 5
    assert times == sorted(times)


@pytest.mark.parametrize(("name", "place"), [("cpu", "#next"), ("monitor", "#advice")])
def test_commands_are_copied(browser: Browser, pages: dict[str, Path], name: str, place: str) -> None:
    from playwright.sync_api import expect

    with opened(browser, pages[name], permissions=["clipboard-read", "clipboard-write"]) as page:
        code = page.locator(f"{place} code.command:visible").last
        button = page.locator(f"{place} code.command + button:visible").last
        button.click()
        expect(button).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == code.text_content()


@pytest.mark.parametrize("name", ["cpu", "monitor"])
def test_names_are_inert(browser: Browser, pages: dict[str, Path], name: str) -> None:
    with opened(browser, pages[name]) as page:
        assert page.evaluate("window.hit") is None
        assert page.locator("img, main script").count() == 0
        assert "</script><script>window.hit = 1</script>" in shown(page)
        assert "\\u202egnp.exe" in shown(page)


def test_samples_are_in_the_page(browser: Browser, pages: dict[str, Path], record: Record) -> None:
    for script in (True, False):
        with opened(browser, pages["cpu"], java_script_enabled=script, accept_downloads=True) as page:
            link = page.locator("#samples a[download]")
            with page.expect_download() as waited:
                link.click()
            name = waited.value.suggested_filename
            packed = Path(waited.value.path()).read_bytes()
        assert name == f"{record.id}.samples.csv.gz"
        rows = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode())))
        wanted = [
            ns
            for run in record.runs
            for footing in (run.performance.cold, run.performance.hot)
            if footing
            for ns in footing.timing.samples_ns
        ]
        assert [float(row["ns"]) for row in rows if row["of"] == "kernel"] == pytest.approx(wanted, rel=1e-5)
        assert not [value for row in rows for value in row.values() if value.lstrip()[:1] in {"=", "+", "-", "@"}]


def test_motion_and_forced_colours(browser: Browser, pages: dict[str, Path]) -> None:
    with opened(browser, pages["cpu"], reduced_motion="reduce", forced_colors="active") as page:
        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
        style = "getComputedStyle(document.documentElement).getPropertyValue('--cold').trim()"
        assert page.evaluate(style) == "CanvasText"
