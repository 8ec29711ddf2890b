"""Write asv's configuration to another place, with results in a folder beside it: `python .ci/asv_config.py FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATHS = ("repo", "benchmark_dir", "env_dir")

target = Path(sys.argv[1])
config = json.loads((ROOT / "asv.conf.json").read_text())
config |= {name: str(ROOT / config[name]) for name in PATHS}
config["results_dir"] = str(target.parent / "asv")
target.parent.mkdir(parents=True, exist_ok=True)
target.write_text(json.dumps(config))
