"""All checks, in the order in which a run needs the items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tritmark.harness.doctor import gpu, host, noise, profiles, tools
from tritmark.harness.doctor.check import Check, State
from tritmark.harness.errors import TritmarkError
from tritmark.harness.providers import load
from tritmark.harness.record import HOST
from tritmark.harness.spec import Tier


def examined(out: Path) -> Iterator[Check]:
    """Yield every check. Takes about two seconds."""
    means = "the kernels that `tritmark run` judges and measures"
    installed = None
    healths = profiles.healths()
    try:
        installed = load()
        own = installed.registry.without_peers
        keys = dict.fromkeys(variant.key for variant in own)
        fitting = [each for key in keys for each, refusal in installed.registry.candidates(key) if refusal is None]
        usable = sum(each.tier is not Tier.PEER for each in fitting)
        forced = [
            f"the environment forces {name}"
            for device in installed.registry.devices.values()
            if (name := device.forced())
        ]
    except (TritmarkError, ImportError) as error:
        yield Check("kernels", State.MEND, str(error), means, "reinstall tritmark: pip install --force-reinstall .")
    else:
        found = f"{usable} of {len(own)} variants run here"
        if forced:
            yield Check(
                "kernels",
                State.BETTER,
                "; ".join([found, *forced]),
                means,
                "unset the variable to measure the best variants, too",
            )
        else:
            yield Check("kernels", State.OK, found, means)
        for problem in installed.problems:
            what = "nothing of this package is loaded; all other packages are"
            yield Check(
                "packages",
                State.MEND,
                str(problem),
                what,
                "fix or remove that package",
                problem.traceback.rstrip(),
            )
    yield host.compiler()
    there = gpu.present()
    yield gpu.driver(there)
    yield from profiles.profiles(healths)
    yield gpu.packages(there)
    if installed is not None:
        yield from gpu.toolkits(installed, there)
    yield from gpu.counters()
    yield host.cores()
    yield host.nodes()
    yield host.huge_pages()
    yield host.governor()
    if installed is not None and HOST in installed.registry.devices:
        yield from noise.noise(installed.registry.devices[HOST])
    yield host.counters()
    yield from tools.tools()
    yield host.disk(out)
