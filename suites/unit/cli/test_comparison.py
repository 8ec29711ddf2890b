"""What `tritmark check` says of a kernel that is right and needlessly slow."""

from __future__ import annotations

from made_up_records import small_record

from tritmark.harness.candidate.plan import Plan
from tritmark.harness.cli import comparison
from tritmark.harness.providers import load
from tritmark.harness.record import Gain, Proposal

INSTALLED = load()


def test_only_sure_gains_of_the_kernel_that_is_checked_are_told_and_each_rule_once() -> None:
    record = small_record()
    mine, other = dict.fromkeys(run.kernel for run in record.runs), record.runs[-1].kernel
    kernel = next(iter(mine))
    assert kernel != other

    def proposed(rule: str, kernel: str, low: float) -> Proposal:
        return Proposal(
            rule=rule,
            run=f"{kernel} w",
            kernel=kernel,
            workload="w",
            title=rule,
            evidence=(),
            gain=Gain(low=low, high=9.0),
            ceiling=10.0,
            edit=f"mend {rule}",
            reproduce="tritmark run",
            verify="tritmark run",
        )

    found = record.model_copy(
        update={
            "proposals": (
                proposed("narrow-simd", kernel, 2.5),
                proposed("narrow-simd", kernel, 2.0),
                proposed("thread-scaling", kernel, 1.0),
                proposed("shape-cliff", other, 3.0),
            )
        }
    )
    variants = {variant.id: variant for variant in INSTALLED.registry.variants}
    plan = Plan((variants[kernel],), (variants[other],), INSTALLED.suite("quick"), 0)
    told = [str(line) for line in comparison.proposals(found, plan)]
    assert told == [f"{variants[kernel].name}: narrow-simd on w, at least 2.50x: mend narrow-simd"]
