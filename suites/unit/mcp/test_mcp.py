"""The server for agents, by the SDK's client."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tritmark.harness.errors import MissingPackageError
from tritmark.harness.mcp.server import server

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:::opentelemetry")]
EXAMPLES = Path(__file__).parents[2] / "examples"
SUITE = """\
title = "a few"
[[workloads]]
op = "i2s_quantize"
shapes = [{ n = 300 }]
families = ["normal", "ties"]
"""


def asked(out: Path, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    """What a client session of the SDK gets from the server in this process."""
    mcp = pytest.importorskip("mcp", reason="mcp is not installed; tox -e py has it")

    async def session() -> Any:
        async with mcp.Client(server(out)) as client:
            return await ask(client)

    return asyncio.run(session())


def test_the_tools_are_described(tmp_path: Path) -> None:
    found = asked(tmp_path, lambda client: client.list_tools())
    tools = {each.name: each for each in found.tools}
    assert list(tools) == ["new", "check", "run", "advise", "explain", "list", "read_report"]
    assert all(each.description for each in tools.values())
    assert tools["check"].input_schema["required"] == ["file"]


def test_a_wrong_kernel_is_judged_in_the_sandbox_and_its_report_read(tmp_path: Path) -> None:
    suite = tmp_path / "few.toml"
    suite.write_text(SUITE, encoding="utf-8")
    arguments = {"file": str(EXAMPLES / "wrong_rounding.c"), "suite": str(suite), "dimensions": ["accuracy"]}

    async def ask(client: Any) -> tuple[Any, Any]:
        return await client.call_tool("check", arguments), await client.call_tool("read_report", {})

    found, report = asked(tmp_path / "results", ask)
    assert not found.is_error, found.content
    verdict = found.structured_content
    assert (verdict["code"], verdict["passed"]) == ("accuracy.values", False)
    failing = verdict["kernels"][0]["failing"]
    assert failing["difference"]["inputs"]["scale"]
    assert Path(failing["file"]).is_file(), "what is kept is outside of the private /tmp"
    assert isinstance(verdict["not_available"], list)
    assert "FAIL" in report.content[0].text


def test_a_kernel_to_start_from_is_written_once(tmp_path: Path) -> None:
    arguments = {"op": "i2s_quantize", "folder": str(tmp_path / "kernels")}

    async def ask(client: Any) -> list[Any]:
        return [await client.call_tool("new", arguments) for _ in range(2)]

    first, second = asked(tmp_path, ask)
    assert not first.is_error, first.content
    source, manifest = (tmp_path / "kernels" / f"my_i2s_quantize{suffix}" for suffix in (".c", ".toml"))
    for path in (source, manifest):
        assert f"{path}:\n{path.read_text(encoding='utf-8')}" in first.content[0].text
    assert second.is_error
    assert "my_i2s_quantize" in second.content[0].text


def test_variants_of_one_op_fit_in_an_answer(tmp_path: Path) -> None:
    async def ask(client: Any) -> list[Any]:
        words = ({"what": "variants", "op": "activation_quantize"}, {"what": "variants", "op": "no_op"})
        return [await client.call_tool("list", each) for each in words]

    found, wrong = asked(tmp_path, ask)
    lines = found.content[0].text.splitlines()
    assert any(line.startswith("cpu/activation_quantize/none/int8/scalar ") for line in lines)
    assert not any("i2s_quantize" in line for line in lines)
    assert not any(line.endswith(" ") or "(cut" in line for line in lines)
    assert wrong.is_error
    assert "--op 'no_op' matches no op" in wrong.content[0].text


def test_what_is_wrong_is_an_error_of_the_tool(tmp_path: Path) -> None:
    found = asked(tmp_path, lambda client: client.call_tool("check", {"file": str(tmp_path / "none.c")}))
    assert found.is_error
    assert "no such file" in found.content[0].text


def test_the_command_serves_on_standard_input_and_output(tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp", reason="mcp is not installed; tox -e py has it")
    how = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "tritmark", "mcp", "--out", str(tmp_path)], env={**os.environ}
    )

    async def session() -> Any:
        async with mcp.Client(how) as client:
            return await client.call_tool("list", {"what": "ops"})

    found = asyncio.run(session())
    assert "ternary_matmul" in found.content[0].text


def test_without_the_sdk_the_next_step_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingPackageError, match=r"the package mcp is missing; next: .*mcp"):
        server(tmp_path)
