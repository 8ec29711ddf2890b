"""Memory, measured on the process: reading row blocks needs the memory of one block, and analysis four times that."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

pytestmark = pytest.mark.long

ROWS, COLUMNS, BLOCK_ROWS = 15_360, 1024, 1024
BLOCK_MB = BLOCK_ROWS * COLUMNS * 4 / 1e6

MEASURE = """
import sys
from tritmark.harness.weights import open_weights

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field))

path, rows, block = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open_weights(path) as source:
    source.read("w", slice(0, 1))
    before = status("VmRSS")
    for first in range(0, rows, block):
        assert source.read("w", slice(first, first + block)).shape == (block, 1024)
print(status("VmHWM") - before)
"""

# The kernel's counter for a process (ru_maxrss) includes the size of the process that started it; its memory map does
# not.
STUDY = """
import sys
from tritmark.harness.cli import main

try:
    main()
finally:
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print("peak", int(line.split()[1]) * 1024, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """63 MB of zeros; the file is sparse, which saves disk space but no memory of a reader."""
    path = tmp_path_factory.mktemp("large") / "m.safetensors"
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [ROWS, COLUMNS], "data_offsets": [0, ROWS * COLUMNS * 4]}}
    ).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + ROWS * COLUMNS * 4)
    return path


def growth_mb(path: Path, block_rows: int) -> float:
    """Peak resident memory above that before the first block, MB."""
    command = [sys.executable, "-c", MEASURE, str(path), str(ROWS), str(block_rows)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def test_row_blocks_bound_the_resident_memory(large_file: Path) -> None:
    assert growth_mb(large_file, BLOCK_ROWS) < BLOCK_MB + 10


def test_the_gauge_sees_a_tensor_read_whole(large_file: Path) -> None:
    assert growth_mb(large_file, ROWS) > ROWS * COLUMNS * 4 / 1e6 - 1


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_studying_stays_under_four_times_the_tensor_and_300_mb(tmp_path: Path, dtype: type) -> None:
    weights: NDArray[Any] = np.zeros((4096, 8192), dtype)
    weights[::3] = 0.5
    save_file({"w": weights}, tmp_path / "model.safetensors")
    command = [
        sys.executable,
        "-c",
        STUDY,
        "run",
        "--weights",
        str(tmp_path),
        "--threads",
        "2",
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert int(done.stderr.rpartition("peak ")[2]) < 4 * weights.nbytes + 300e6
