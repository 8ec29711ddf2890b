"""Evidence that launches report, added up to a Receipt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256

from tritmark.harness.spec import Launch, Proof, Receipt, Variant


@dataclass(slots=True)
class LaunchEvidence:
    """The runs of several launches of one variant."""

    runs: int = 0
    ran: str = ""
    threads: int = 0
    proofs: list[Proof] = field(default_factory=list)
    """Evidence of the device's launcher, one entry a launch."""

    def add(self, launch: Launch, runs: int, proof: Proof | None) -> None:
        """Add `runs` runs of a launch, and the evidence that the device's launcher collected about all of them."""
        if not runs:
            return
        self.runs += runs
        self.ran, self.threads = launch.ran, launch.threads_used
        if proof is not None:
            self.proofs.append(proof)

    def receipt(self, variant: Variant) -> Receipt | None:
        """The receipt of all runs; None if nothing ran."""
        if not self.runs:
            return None
        return with_proofs(Receipt(kernel=variant.id, ran=self.ran, runs=self.runs, threads=self.threads), self.proofs)

    def added_to(self, receipt: Receipt) -> Receipt:
        """That receipt of the same variant, with these runs added."""
        return with_proofs(replace(receipt, runs=receipt.runs + self.runs), self.proofs)


def with_proofs(receipt: Receipt, proofs: Iterable[Proof]) -> Receipt:
    """The receipt with more proofs. If launches had different code, its hash is the hash of all their hashes,
    sorted."""
    found = list(proofs)
    if not found:
        return receipt
    # A simulator has no speed.
    timed = [proof for proof in found if not proof.simulated]
    hashes = sorted({proof.code_hash for proof in (receipt, *found)} - {""}) or [""]
    functions = dict.fromkeys((*receipt.functions, *(name for proof in found for name in proof.functions)))
    return replace(
        receipt,
        uuid=", ".join(dict.fromkeys(filter(None, (receipt.uuid, *(proof.uuid for proof in found))))),
        functions=tuple(functions),
        launches=receipt.launches + sum(proof.launches for proof in found),
        device_ns=receipt.device_ns + sum(proof.device_ns for proof in timed),
        timed_runs=receipt.timed_runs + sum(proof.timed_runs for proof in timed),
        simulated=receipt.simulated or any(proof.simulated for proof in found),
        tuned="; ".join(dict.fromkeys(filter(None, (receipt.tuned, *(proof.tuned for proof in found))))),
        launched=tuple(dict.fromkeys((*receipt.launched, *(launch for proof in found for launch in proof.launched)))),
        code_hash=hashes[0] if len(hashes) == 1 else sha256("".join(hashes).encode()).hexdigest(),
    )


def added(receipts: Iterable[Receipt | None]) -> Receipt | None:
    """One receipt for the runs of one variant in several processes; None if nothing ran."""
    found = [each for each in receipts if each is not None]
    if not found:
        return None
    # On the host, launches prove nothing that a receipt could hold.
    return with_proofs(
        replace(found[0], runs=sum(each.runs for each in found)), found[1:] if found[0].functions else []
    )
