"""Read the JSON files beside weights, index.json and config.json, with limits and checks."""

from __future__ import annotations

import json
from pathlib import Path

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.plain_file import PlainFile

CONFIGURATIONS = (
    *("config.json", "quantization_config.json", "quantize_config.json", "quant_config.json"),
    "hf_quant_config.json",
)
"""Files that describe how weights are quantized."""


def read_json(path: Path, largest: int) -> object:
    """The parsed file. Raises WeightFileError for invalid JSON, more than `largest` bytes, and a repeated key, which
    parsers treat differently."""
    file = PlainFile(path)

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            again = next(key for number, key in enumerate(keys) if key in keys[:number])
            raise file.error(f"the key {inert(again)} twice", "keys used once")
        return found

    try:
        if file.size > largest:
            raise file.error(f"{file.size} bytes", f"at most {largest}")
        found: object = json.loads(file.read(0, file.size), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        if isinstance(error, WeightFileError):
            raise
        raise file.error(f"not JSON: {inert(str(error))}", "JSON") from error
    finally:
        file.close()
    return found
