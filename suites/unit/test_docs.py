"""README, HACKING, CONTRIBUTING and the pages of docs/: each command runs, or its program understands it."""

from __future__ import annotations

import configparser
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from known_commands import COMMAND, HIDDEN, LISTED, is_group, parsed, split

from tritmark.harness import cli
from tritmark.harness.cli import exit_status

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "HACKING.md", "CONTRIBUTING.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((DOCS / "guides").glob("*.md")),
    *sorted((DOCS / "kernels").glob("*.md")),
]
COMMANDS: dict[str, Any] = {**LISTED, **HIDDEN}

RUN = (
    "tritmark list ops",
    "tritmark list formats",
    "tritmark new i2s_quantize --kind c",
    "tritmark new ternary_matmul --kind c --format i2_s_x86",
    "tritmark new i2s_quantize --kind cu --out cuda",
    "tritmark new i2s_dequantize --kind py",
    "tritmark run --suite smoke --op i2s_dequantize",
    "tritmark schema > record.schema.json",
    "tritmark schema verdict > verdict.schema.json",
    "tritmark frame --to csv --out runs.csv",
    "tritmark advise",
)
"""What is run here, one after the other in one folder."""

NOT_RUN = {
    ".venv/bin/tritmark run": "takes minutes; .ci/run does it with a shorter suite",
    "tritmark run": "takes minutes",
    "tritmark check suites/examples/activation_avx512.c --json=verdict": "needs AVX-512; test_examples.py judges it",
    "tritmark doctor": "test_doctor.py runs it",
    "tritmark criteria": "takes minutes; test_criteria_command.py runs it on kernels of its own",
    "tritmark criteria --device cpu --seed 7": "as the other",
    "tritmark criteria --json > criteria.json": "as the other",
    "tritmark health": "test_health.py runs it; this one would write into the home folder",
    "tritmark health --passive": "as the other",
    "tritmark health --passive --json": "as the other",
    "tritmark health --history": "as the other",
    "tritmark report --open": "opens a browser",
    "tritmark gate main slow --op i2s_dequantize": "builds two commits; the gate's own tests do that",
    "tritmark check my_i2s_quantize.c": "measures for a minute; test_candidate_check.py checks shorter ones",
    "tritmark check my_ternary_matmul.c": "as the other",
    "tritmark check my_i2s_quantize.c --json=verdict": "as the other; suites/unit/check has shorter ones",
    "tritmark check KERNEL.c --inputs results/failing/NAME.npz": "of a failed check; suites/unit/check replays one",
    "pip install '.[mcp]'": "made before the tests",
    "pip install '.[models]'": "made before the tests",
    "pip install '.[fleet]'": "made before the tests",
    "pip wheel . --no-deps --wheel-dir wheels": "tox -e wheel builds it",
    "pip install wheels/tritmark-*.whl": "tox -e wheel installs it",
    "tritmark run --suite smoke": "suites/wheel and .ci/run run it",
    "dask scheduler": "serves until it is stopped; suites/unit/fleet starts clusters",
    "dask worker tcp://10.0.0.5:8786 --name zen4-01 --nthreads 1 --resources tritmark/cpu/zen4=1": "as the other",
    'dask worker tcp://10.0.0.5:8786 --name gpu-1 --nthreads 1 --resources "tritmark/cpu/spr=1 tritmark/cuda/h200=1"': (
        "as the other"
    ),
    "tritmark fleet run --scheduler tcp://10.0.0.5:8786": "suites/unit/fleet runs it",
    'tritmark fleet run --scheduler tcp://10.0.0.5:8786 --suite smoke --op "ternary_*" --kind "cpu/*"': "as the other",
    "tritmark model FOLDER": "test_whole_model.py runs it on a model that it makes",
    "tritmark model FILE.gguf --activation-bits 8": "test_gguf_models.py loads files that it makes",
    "tritmark model FILE.gguf --engine llama-bench=PATH --engine ik-llama-cpp-python": "suites/unit/engines",
    "python suites/large/published_models.py bitnet-b1.58-2B-4T FOLDER": "writes 1.2 GB; tests make small ones with it",
    "python suites/large/published_models.py bitnet-b1.58-2B-4T FILE.gguf --type iq2_bn": "as the other",
    "python suites/large/published_models.py ternary-bonsai-8B FILE.gguf --type pq2_0": "as the other",
    "tritmark mcp --out results": "serves until its input ends; suites/unit/mcp calls it",
    "tritmark check my_i2s_dequantize.py --op i2s_dequantize": "measures for a minute",
    "TRITMARK_CUDA=simulator tritmark check cuda/my_i2s_quantize.cu --suite smoke": "as test_candidate_cuda.py",
    "TRITMARK_CUDA=simulator tritmark run --suite smoke --device cuda": "test_simulator.py runs kernels there",
    "tritmark run --suite base3": "of a package that is not installed here; tox -e plugin runs it",
    "TRITMARK_CUDA=simulator tritmark run --suite base3 --device cuda": "of a package; tox -e plugin runs it",
    "python3 -m venv .venv": "made before the tests",
    ".venv/bin/pip install .": "made before the tests",
    ".venv/bin/pip install -e '.[dev]' --config-settings editable_mode=strict": "compiles for minutes",
    ".venv/bin/pre-commit install": "changes the repository",
    ".venv/bin/pre-commit run --all-files": "fetches the hooks; tox -e lint and tox -e types do the same",
    ".venv/bin/pytest -n 2 -m 'not cuda and not timing'": "runs these tests",
    ".venv/bin/pip install tox": "made before the tests",
    ".venv/bin/tox run-parallel": "runs these tests",
    ". .venv/bin/activate": "a shell's own",
    "git switch -c slow": "changes the repository",
    'git commit -am "Dequantize twice"': "changes the repository",
    "git switch main": "changes the repository",
    "pip install asv virtualenv": "made before the tests",
    "tritmark history --register-machine": "writes into the home folder; the tests of history do it elsewhere",
    "asv run main~3..main": "builds commits",
    "asv continuous main slow": "builds commits",
    "asv publish": "needs results; tox -e asv runs every benchmark",
    "tritmark sweep ternary_matmul --axis M=1..4096": "takes minutes; suites/unit/sweep runs a short one",
    "tritmark sweep ternary_matmul --axis M=1,16 --axis K=256..8192 --format 'tile64*' --out sweep.png --frame "
    "sweep.csv": "as the other",
    "tritmark compare old.json new.json --plot speed.svg": "test_compare_plot.py runs it on Records that it makes",
    "tritmark sign results/runs/ID.json --key ~/.ssh/id_ed25519": "suites/unit/signing does it with keys of its own",
    "tritmark verify results/runs/ID.json --trusted allowed_signers": "as the other",
    "tritmark verify records/ID.json --trusted records/allowed_signers": "as the other",
    "tritmark league --collect records --trusted records/allowed_signers --out site": "test_league_site.py runs it",
    "tritmark run --suite speed": "takes minutes",
    "tritmark verify": "test_verify.py runs it",
    "tritmark history": "needs results; the tests of history make some",
}
"""What stands in blocks and is not run, each with the reason. It is checked for what its program understands."""

PLACEHOLDERS = {"N": "1", "S": "1", "M": "1"}
_PROGRAMS = (
    "tritmark",
    "tox",
    "pytest",
    "python",
    "python3",
    "pip",
    "pre-commit",
    "dask",
    "asv",
    "git",
    "sed",
    "compute-sanitizer",
)
_VARIABLE = re.compile(r"[A-Z][A-Z_]*=\S+")


def blocks(text: str, *languages: str) -> Iterator[str]:
    """The fenced blocks in these languages; with "sh" the indented ones too."""
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language in languages:
            yield body
    if "sh" in languages:
        plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        yield from (
            "\n".join(line[4:] for line in found.splitlines())
            for found in re.findall(r"(?:^ {4}\S.*\n)+", plain, re.MULTILINE)
        )


def in_blocks(text: str) -> Iterator[str]:
    """Each command in a block that is meant for a shell."""
    for body in blocks(text, "sh"):
        for line in body.splitlines():
            if not line.startswith(("{", "}", '"')):
                yield from (each.strip() for each in re.sub(r"\s+# .*", "", line).split(" && "))


def inline(text: str) -> Iterator[str]:
    """Each command that is mentioned in the text; alternatives (a|b) one by one."""
    plain = re.sub(
        r"^ {4}.*$", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), flags=re.MULTILINE
    )
    for found in re.findall(r"`([^`\n]+)`", plain):
        words = found.replace("\\|", "|").split(" ")
        while words and _VARIABLE.fullmatch(words[0]):
            words = words[1:]
        if words and words[0] in _PROGRAMS and (len(words) > 1 or words[0] == "tox"):
            yield from (" ".join(each) for each in product(*(word.split("|") for word in words)))


def understood(line: str) -> None:
    """Raises or fails where the program that the line calls would not understand it."""
    words = shlex.split(line)
    while _VARIABLE.fullmatch(words[0]):
        words = words[1:]
    words[0] = words[0].removeprefix(".venv/bin/")
    if "#" in words:
        words = words[: words.index("#")]
    checks = {
        "tritmark": tritmark,
        "tox": tox,
        "python": python,
        "python3": python,
        "pytest": pytest_,
        "pip": pip,
        "pre-commit": pre_commit,
        "dask": dask,
        "asv": asv,
        "git": git,
        "sed": sed,
    }
    if words[0] in checks:
        checks[words[0]](words[1:])
    else:
        assert words[0] in {".", "compute-sanitizer"}, f"{line!r}: no way to check it is known"


def tritmark(words: list[str]) -> None:
    words = [PLACEHOLDERS.get(word, word) for word in words if not re.fullmatch(r"\[[A-Z]+\]", word)]
    if ">" in words:
        words = words[: words.index(">")]
    if words[0].startswith("-"):
        assert words[0] in [option for parameter in COMMAND.params for option in parameter.opts]
        return
    name, rest = split(words)
    assert name, f"tritmark has no {words[0]!r}"
    if not rest:  # a mention of the command, not a use
        return
    assert not is_group(COMMANDS[name]), f"tritmark {name} has no {rest[0]!r}"
    takers = {option for each in COMMANDS[name].params if not getattr(each, "is_flag", True) for option in each.opts}
    if words[-1] in takers:  # a mention of the option
        words.append("1")
    parsed(words)


def tox(words: list[str]) -> None:
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "tox.ini")
    if words[:1] == ["-e"]:
        name = words[1]
        assert f"testenv:{name}" in settings or re.fullmatch(r"py|py31[123]", name), f"tox.ini has no {name}"


def python(words: list[str]) -> None:
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None, f"there is no module {words[1]}"
    else:
        assert (ROOT / words[0]).is_file(), f"there is no {words[0]}"


def pytest_(words: list[str]) -> None:
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m":
            assert set(word.split()) - {"and", "or", "not"} <= {each.partition(":")[0] for each in markers}
        elif before != "-n" and not word.startswith("-"):
            assert (ROOT / word).exists(), word


def pip(words: list[str]) -> None:
    assert words[0] in {"install", "wheel"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words[1:]:
        for names in re.findall(r"\[([\w,]+)\]", word):
            assert set(names.split(",")) <= set(extras), f"there is no such extra among {names}"


def pre_commit(words: list[str]) -> None:
    assert words[0] in {"install", "run"}


def dask(words: list[str]) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed; tox -e py has it")
    from distributed.cli import dask_scheduler, dask_ssh, dask_worker

    program: Any = {"scheduler": dask_scheduler, "worker": dask_worker, "ssh": dask_ssh}[words[0]].main
    program.make_context("dask", words[1:])


def asv(words: list[str]) -> None:
    assert words[0] in {"run", "continuous", "publish", "preview", "machine", "compare", "show"}


def git(words: list[str]) -> None:
    assert words[0] in {"switch", "commit", "clone", "push", "log"}


def sed(words: list[str]) -> None:
    assert (ROOT / words[-1]).is_file()


ALL = [(page.name, line) for page in PAGES for line in (*in_blocks(page.read_text()), *inline(page.read_text()))]


@pytest.mark.parametrize(("page", "line"), dict.fromkeys(ALL))
def test_the_program_understands_it(page: str, line: str) -> None:
    understood(line)


def test_what_is_meant_to_be_typed_is_run_or_said_why_not() -> None:
    typed = {line for page in PAGES for line in in_blocks(page.read_text())}
    sed_lines = {line for line in typed if line.startswith("sed ")}
    assert typed - sed_lines == {*RUN, *NOT_RUN}


def test_a_renamed_option_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        understood("tritmark run --siute quick")
    with pytest.raises(AssertionError, match="no 'runn'"):
        understood("tritmark runn")
    with pytest.raises(AssertionError, match="tune has no 'variant'"):
        understood("tritmark tune variant")
    with pytest.raises(AssertionError, match="no way to check"):
        understood("make all")


def test_they_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for line in RUN:
        words, _, into = line.partition(" > ")
        monkeypatch.setattr(sys, "argv", shlex.split(words))
        status = 0
        try:
            cli.main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        told = capsys.readouterr()
        assert status == 0, (line, told.err)
        if into:
            Path(into).write_text(told.out)
    page = (ROOT / "docs" / "record.md").read_text()
    for code in blocks(page, "python"):
        exec(compile(code, "docs/record.md", "exec"), {"__name__": "docs"})
    assert "i2s_dequantize" in capsys.readouterr().out


def test_python_in_them_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page: dict[str, Any] = {"__name__": "docs"}
    for code in blocks((DOCS / "python.md").read_text(), "python"):
        exec(compile(code, "docs/python.md", "exec"), page)
    assert "ternary_matmul" in capsys.readouterr().out
    (code,) = blocks((ROOT / "docs" / "kernel.md").read_text(), "python")
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(code, "docs/kernel.md", "exec"), names)
    x = names["np"].empty(2, "float32")
    names["dequantize"](names["np"].array([-2, 1], "int8"), 0.5, x)
    assert x.tolist() == [-1.0, 0.5]


def test_python_in_the_page_on_pytorch_runs() -> None:
    pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
    for code in blocks((ROOT / "docs" / "pytorch.md").read_text(), "python"):
        exec(compile(code, "docs/pytorch.md", "exec"), {"__name__": "docs"})


def test_manifests_in_them_are_legal(tmp_path: Path) -> None:
    from tritmark.harness.candidate.manifest import read_manifest
    from tritmark.harness.providers import load

    page = (ROOT / "docs" / "kernel.md").read_text()
    found = [text for text in blocks(page, "toml") if "op = " in text]
    assert len(found) == 2
    for text in found:
        source = tmp_path / ("my.cu" if "grid" in text else "my.c")
        read_manifest(source, Path("my.toml"), text, load(), launched="grid" in text)


def test_the_entry_point_in_them_is_that_of_the_example() -> None:
    (text,) = (text for text in blocks((ROOT / "docs" / "kernel.md").read_text(), "toml") if "entry-points" in text)
    assert text in (ROOT / "suites" / "examples" / "plugin" / "pyproject.toml").read_text()


def test_the_slowed_kernel_is_slowed(tmp_path: Path) -> None:
    """The line of the tutorial that edits a kernel still matches one line, and the kernel then does its work twice."""
    (line,) = (line for line in in_blocks((DOCS / "tutorial.md").read_text()) if line.startswith("sed "))
    name = shlex.split(line)[-1]
    copy = tmp_path / name
    copy.parent.mkdir(parents=True)
    before = (ROOT / name).read_text()
    copy.write_text(before)
    subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True)
    added = copy.read_text().splitlines()
    for line_before in before.splitlines():
        added.remove(line_before)
    assert len(added) == 1
    assert "tm_parallel(" in added[0]


def test_the_page_on_commands_has_every_command_and_its_options_exist() -> None:
    text = (DOCS / "commands.md").read_text()
    listed, deprecated = text.split("| deprecated | use |")
    rows = [
        (split(words.replace("\\|", " ").split())[0], what)
        for words, what in re.findall(r"^\| `tritmark (.*?)` \| (.*) \|$", listed, re.MULTILINE)
    ]
    assert {name for name, _ in rows} == {name for name, command in LISTED.items() if not is_group(command)}
    for name, what in rows:
        legal = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        for option in re.findall(r"`(--[\w-]+)", what):
            assert option in legal, f"tritmark {name} has no {option}"
    former = dict(re.findall(r"^\| `tritmark (.*?)` \| `tritmark (.*?)` \|$", deprecated, re.MULTILINE))
    assert set(former) == set(HIDDEN)
    for old, new in former.items():
        assert f"`tritmark {new}`" in HIDDEN[old].help
        assert new in LISTED


def test_the_page_on_commands_has_every_exit_status() -> None:
    text = (DOCS / "commands.md").read_text()
    table = text[text.index("| exit status |") :]
    told = {int(number): meaning for number, meaning in re.findall(r"^\| (\d+) \| (.*) \|$", table, re.MULTILINE)}
    assert told == exit_status.MEANINGS


def script(name: str) -> Any:
    """A script of docs/, imported."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference() -> Any:
    return script("reference_pages")


@pytest.fixture(scope="module")
def reference_texts(reference: Any) -> dict[str, str]:
    """Its pages by name."""
    return dict(reference.pages())


def test_the_reference_has_the_contract_of_every_op(reference_texts: dict[str, str]) -> None:
    """Inputs, outputs, axes, tolerance, reference, least work, and each variant of each key."""
    from tritmark.harness.providers import installed
    from tritmark.harness.spec import Tier
    from tritmark.kernels import OPS, PROVIDER

    # Tests of this process may have registered others since.
    own = {variant.id for variant in PROVIDER.variants}
    every = [variant for variant in installed().registry.variants if variant.id in own]
    for op in OPS:
        page = reference_texts[f"ops/{op.name}.md"]
        assert f"({op.name}.md)" in reference_texts["ops/index.md"]
        rows = [line for line in page.splitlines() if line.startswith("| ")]
        for tensor in (*op.inputs, *op.outputs):
            named = [row for row in rows if row.startswith(f"| `{tensor.name}` |")]
            assert any(all(axis in row for axis in tensor.axes) for row in named), (op.name, tensor.name)
        assert f"\n{op.tolerance_kind.value}: " in page
        assert ("NaN and infinity" in page) is any(each.values.value in {"finite", "positive"} for each in op.inputs)
        assert "def reference(" in page
        assert "Traffic(" in page
        assert "| bytes read |" in page, f"the suite quick measures no workload of {op.name}"
        if op.tolerance_kind.value == "bounded":
            assert ".bound" in page
            assert "gamma(" in page
        for variant in every:
            key = variant.key
            if key.op == op.name and variant.tier is not Tier.PEER and ":" not in key.device:
                (row,) = (row for row in rows if row.startswith(f"| {key.device} | {key.format} | {key.dtype} | `"))
                assert f"`{variant.name}`" in row


def test_the_reference_has_every_command_option_and_exit_status(reference_texts: dict[str, str]) -> None:
    pages = reference_texts
    assert len([name for name in pages if name.startswith("commands/")]) == len(LISTED) + 1
    for name, command in LISTED.items():
        file, group = name.replace(" ", "_"), name.rpartition(" ")[0] or "index"
        page = pages[f"commands/{file}.md"]
        assert f"[`tritmark {name}`]({file}.md)" in pages[f"commands/{group}.md"]
        assert f"\n{file}\n" in pages[f"commands/{group}.md"]
        for option in (each for parameter in command.params for each in parameter.opts if each.startswith("-")):
            assert option in page, f"{name}: {option}"
    for status, meaning in exit_status.MEANINGS.items():
        assert f"| {status} | {meaning} |" in pages["exit_statuses.md"]


def test_an_environment_variable_without_a_description_is_an_error(
    reference: Any, reference_texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "`TRITMARK_FORCE_ISA`" in reference_texts["environment.md"]
    monkeypatch.delitem(reference.VARIABLES, "TRITMARK_TUNED")
    with pytest.raises(ValueError, match=r"not described: \['TRITMARK_TUNED'\]"):
        reference.environment()


@pytest.mark.parametrize("name", ["record.md", "performance.md", "criteria.md", "README.md"])
def test_generated_parts_are_what_the_code_and_the_baselines_say(name: str) -> None:
    """`python docs/generate.py` makes it so."""
    generate = script("generate")
    (path,) = (path for path in generate.PAGES if path.name == name)
    text = path.read_text()
    assert generate.BEGIN.search(text)
    assert generate.page(text) == text


SPECIFICATION = ROOT / "docs" / "specification.md"
THIS = str(Path(__file__).relative_to(ROOT))
ROOMS = ("harness", "kernels", "pytorch", "cython_ext", "suites", "docs")
WRITTEN = {".py", ".pyx", ".pxi", ".c", ".h", ".cpp", ".cu", ".cuh", ".toml", ".md", ".html"}
_CITED = re.compile(r"\bspecification(?:\.md)?,\s+(?:[*#]\s+)?(?:section\s+)?(\d+(?:\.\d+)?)", re.IGNORECASE)
_NUMBERED = re.compile(r"\b(?:specification|document|spec)s?\s+(?:[*#]\s+)?\d{2,}", re.IGNORECASE)


def cited(text: str) -> list[str]:
    """The sections of docs/specification.md that the text cites; a comment may break its line within a citation."""
    return _CITED.findall(text)


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    """Every text of the project, by its path."""
    paths = [*PAGES, *(path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in WRITTEN)]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def test_cited_sections_exist(written: dict[str, str]) -> None:
    sections = re.findall(r"^##+ (\d+(?:\.\d+)?) \S", SPECIFICATION.read_text(), re.MULTILINE)
    assert len(sections) == len(set(sections))
    missing = {
        path: found for path, text in written.items() if path != THIS and (found := set(cited(text)) - set(sections))
    }
    assert missing == {}
    assert len([path for path, text in written.items() if cited(text)]) > 20, (
        "citations are written otherwise now, and none is seen"
    )


def test_no_numbered_document_from_elsewhere_is_cited(written: dict[str, str]) -> None:
    """A reader has this repository and what is published."""
    assert [path for path, text in written.items() if path != THIS and _NUMBERED.search(text)] == []


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("(specification, 4.2)", ["4.2"]),
        ("as the specification, 2.3, has it", ["2.3"]),
        ("docs/specification.md, section 3.3; IEEE 754-2019, 5.4.2", ["3.3"]),
        (" * first (specification,\n * 1.2), then", ["1.2"]),
        ("technical specifications, 12 of them", []),
    ],
)
def test_citations_are_recognized(text: str, sections: list[str]) -> None:
    assert cited(text) == sections
    assert _NUMBERED.search(text) is None


@pytest.mark.parametrize(
    "text", ["(specification 001)", "Specification 002 lets", "the specification\n * 000, section 1.1", "document 03"]
)
def test_numbered_documents_are_recognized(text: str) -> None:
    assert _NUMBERED.search(text)


def test_the_specification_names_files_that_are_there() -> None:
    named = [
        each
        for each in re.findall(r"`([^`\s]+)`", SPECIFICATION.read_text())
        if each.startswith(tuple(f"{room}/" for room in (*ROOMS, "results")))
    ]
    assert [each for each in named if not (ROOT / each).exists()] == []
    assert len(named) > 50


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    inline_links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    definitions = re.findall(r"^\[[^\]]+\]: ([^#:\s]+)$", text, re.MULTILINE)
    for target in (*inline_links, *definitions):
        assert (page.parent / target).exists(), target
