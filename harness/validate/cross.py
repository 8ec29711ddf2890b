"""The cross-validation dimension: a kernel beside a third-party implementation on the same inputs, judged by the exact
value.

`collect` (see harness.validate.collect) runs both in the candidate's process. This module compares them in the process
that holds the expected values. Two results agree if each is within what its own arithmetic admits of the exact value,
or if both are the same. If they disagree, the exact value decides which of them is incorrect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.measure.buffers import raw
from tritmark.harness.measure.statistics import LEAST_SAMPLES
from tritmark.harness.record import Cross, Divergence, PeerComparison, Ratio, Status
from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Peer, ToleranceKind
from tritmark.harness.text.units import counted
from tritmark.harness.validate.collect import POISON, Collected, collect, collect_task, known, suited
from tritmark.harness.validate.compare import Expected, compare, largest_difference
from tritmark.harness.validate.guards import bits
from tritmark.harness.validate.pieces import grown

__all__ = [
    "Collected",
    "CrossTask",
    "collect",
    "collect_task",
    "confront",
    "cross",
    "known",
    "meeting",
    "shortened",
    "suited",
]

_PART = 1 << 19
"""Elements of an output for which the admitted error of a peer is computed at a time."""

_TENTH = 0.1
_SHOWN = 6
"""Elements of an array that a text lists."""


def confront(
    op: Op,
    key: KernelKey,
    expected: Sequence[Expected],
    collected: Collected,
    *,
    peer: Peer,
    logical: Arrays,
    axes: Axes,
    in_parts: bool = False,
) -> PeerComparison:
    """Compare the outputs of both, with the exact values as the judge. `expected` covers all outputs of the op, from
    the same logical inputs. `in_parts`: compute the admitted error of the peer in pieces (see Op.independent_axis), so
    that no array of the outputs' size is made for it."""
    if collected.missing:
        return PeerComparison(
            status=Status.NOT_RUN,
            reason=collected.missing,
            peer=peer.name,
            version=collected.version,
            reference=peer.reference,
        )
    if collected.error:
        return PeerComparison(
            status=Status.ERROR,
            reason=collected.error,
            peer=peer.name,
            version=collected.version,
            reference=peer.reference,
        )
    asked = [each for each in expected if each.name in peer.outputs]
    garbled = _garbled(asked, collected)
    if garbled:
        return PeerComparison(
            status=Status.ERROR, reason=garbled, peer=peer.name, version=collected.version, reference=peer.reference
        )
    parts = (
        list(_cuts(op, key, logical, axes)) if in_parts and peer.error_bound is not None else [_Cut(logical, axes, {})]
    )
    outside = _outside(peer, asked, collected.peer, parts)
    if outside is None:
        broken = "the peer's error_bound is negative or not finite; it must be finite and 0 or more"
        return PeerComparison(
            status=Status.ERROR, reason=broken, peer=peer.name, version=collected.version, reference=peer.reference
        )
    sides = [
        _confronted(each, collected.own[each.name], collected.peer[each.name], outside[each.name]) for each in asked
    ]
    differing = [side for side in sides if side.differ.size]
    wrong = [side for side in differing if side.kernel_wrong.size]
    peer_wrong = bool(differing) and not wrong
    reported: dict[str, Any] = {}
    if differing:
        side = (wrong or differing)[0]
        at = int((side.kernel_wrong if wrong else side.differ)[0])
        reported = _shown(op, key, axes, logical, side, at)
    status, reason = _verdict(peer, sides, wrong, peer_wrong, reported)
    recommended, why = (
        (False, "")
        if peer.reference
        else _migration(status, peer_wrong, any(side.both_wrong for side in sides), collected)
    )
    return PeerComparison(
        status=status,
        reason=reason,
        peer=peer.name,
        version=collected.version,
        match=not differing,
        elements=sum(side.own.size for side in sides),
        mismatches=sum(side.differ.size for side in sides),
        largest_error=max((side.largest for side in sides), default=None),
        first=reported.get("first"),
        exact=reported.get("exact", ""),
        inputs=reported.get("inputs", {}),
        peer_wrong=peer_wrong,
        own_ns=collected.own_ns,
        peer_ns=collected.peer_ns,
        speedup=collected.speedup,
        migration_recommended=recommended,
        migration_reason=why,
        migration_within_tenth=_within_tenth(not differing, collected.speedup),
        reference=peer.reference,
    )


def cross(op: Op, comparisons: Sequence[PeerComparison]) -> Cross:
    """The verdict from all comparisons of one Run."""
    if not comparisons:
        return Cross(status=Status.NOT_RUN, reason="no peer has this op in this format and dtype")
    for status in (Status.FAIL, Status.ERROR, Status.AMBIGUOUS):
        reported = [f"{each.peer}: {each.reason}" for each in comparisons if each.status is status]
        if reported:
            return Cross(status=status, reason="; ".join(reported), peers=tuple(comparisons))
    if all(each.status is Status.NOT_RUN for each in comparisons):
        reason = "; ".join(f"{each.peer}: {each.reason}" for each in comparisons)
        return Cross(status=Status.NOT_RUN, reason=reason, peers=tuple(comparisons))
    remarks = [f"{each.peer}: {each.reason}" for each in comparisons if each.status is Status.PASS and each.reason]
    return Cross(status=Status.PASS, reason="; ".join(remarks), peers=tuple(comparisons))


class CrossTask:
    """The confrontation of all `variants` of one key on one workload. The admitted error of a peer is computed once,
    and is not kept for a single variant.

    `expected` covers all outputs of the op for the logical inputs, which `collect` gets too.
    """

    def __init__(
        self,
        op: Op,
        key: KernelKey,
        peers: Iterable[Peer],
        expected: Sequence[Expected],
        logical: Arrays,
        axes: Axes,
        variants: int,
    ) -> None:
        self._op, self._key, self._expected, self._logical, self._axes = op, key, expected, logical, axes
        self._alone = variants == 1
        found = suited(peers, key)
        self.peers = (
            tuple(found) if self._alone else tuple(replace(peer, error_bound=_once(peer.error_bound)) for peer in found)
        )

    def judge(self, run: Callable[[Peer], Collected]) -> Cross:
        """Confront one variant with every peer. `run(peer)` collects. An exception of it, such as a worker's crash or
        time-out, is ERROR in that comparison."""
        found = []
        for peer in self.peers:
            try:
                collected = run(peer)
            except Exception as error:
                collected = Collected(error=f"running both raised {type(error).__name__}: {error}")
            found.append(
                confront(
                    self._op,
                    self._key,
                    self._expected,
                    collected,
                    peer=peer,
                    logical=self._logical,
                    axes=self._axes,
                    in_parts=self._alone,
                )
            )
        return cross(self._op, found)


ErrorBound = Callable[[Arrays, Axes], Mapping[str, Any]]


def _once(bound: ErrorBound | None) -> ErrorBound | None:
    """The same bound, computed once for unchanged inputs."""
    if bound is None:
        return None
    kept: list[Mapping[str, Any]] = []

    def again(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
        if not kept:
            kept.append(bound(inputs, axes))
        return kept[0]

    return again


@dataclass(frozen=True, slots=True)
class _OutputPair:
    """One output of both sides. Flat indices, in C order."""

    expected: Expected
    own: npt.NDArray[Any]
    peer: npt.NDArray[Any]
    differ: npt.NDArray[np.intp]
    """Elements on which they disagree."""
    kernel_wrong: npt.NDArray[np.intp]
    """Those of them in which the kernel is incorrect by the exact value."""
    both_wrong: int
    """Number of elements that are equal and incorrect."""
    largest: float


def _garbled(asked: Sequence[Expected], collected: Collected) -> str:
    """The fault of the collected outputs or times; "" if they can be compared."""
    for whose, side in (("kernel", collected.own), ("peer", collected.peer)):
        for each in asked:
            found, wanted = side.get(each.name), each.values
            if not isinstance(found, np.ndarray) or (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
                return f"the {whose}'s {each.name} that came back is not {wanted.dtype} of shape {wanted.shape}"
    times = [collected.own_ns, collected.peer_ns] + (
        [ratio.low, ratio.median, ratio.high] if (ratio := collected.speedup) else []
    )
    if not all(time is None or (isfinite(time) and time > 0) for time in times):
        return "the times that came back are not positive finite numbers"
    return ""


def _admitted(expected: Expected, bounds: Mapping[str, Any] | None) -> Expected:
    """The expected values with the error that the peer's arithmetic admits; `bounds` None: the same bits."""
    if bounds is None:
        return replace(expected, tolerance_kind=ToleranceKind.EXACT, error_bound=None)
    bound = np.broadcast_to(np.asarray(bounds[expected.name], np.float64), expected.values.shape)
    bound = np.where(np.isfinite(expected.exact.astype(np.float64)), bound, 0.0)  # infinities and NaN are exact
    return replace(expected, tolerance_kind=ToleranceKind.BOUNDED, error_bound=bound)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Adjacent pieces of an op: inputs and axes, and for each output the axis and the part [begin, end) along it. An
    output that is not listed belongs to them as a whole."""

    logical: Arrays
    axes: Axes
    outputs: Mapping[str, tuple[int, int, int]]

    def of(self, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The part of an output: a view."""
        if name not in self.outputs:
            return array
        axis, begin, end = self.outputs[name]
        return array[(slice(None),) * axis + (slice(begin, end),)]

    def flat(self, name: str, shape: tuple[int, ...], at: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Flat indices within an output of that shape, of elements at flat indices within the part."""
        if name not in self.outputs:
            return at
        axis, begin, end = self.outputs[name]
        places = list(np.unravel_index(at, (*shape[:axis], end - begin, *shape[axis + 1 :])))
        places[axis] = places[axis] + begin
        return np.ravel_multi_index(tuple(places), shape)


def _cuts(op: Op, key: KernelKey, logical: Arrays, axes: Axes) -> Iterator[_Cut]:
    """All pieces of the op, grouped so that no output of a group has more than about _PART elements."""
    axis, unit = op.independent_axis(axes, key) if op.independent_axis is not None else ("", 1)
    like = op.outputs_like(axes, key)
    most = max(prod(shape) for shape, _ in like.values())
    outputs = grown(op, key, axes, axis, unit) if axis and most > _PART else None
    if outputs is None:
        yield _Cut(logical, axes, {})
        return
    along = {tensor.name: tensor.axes.index(axis) for tensor in op.inputs if axis in tensor.axes}
    size = unit * max(1, axes[axis] * _PART // most // unit)
    for begin in range(0, axes[axis], size):
        end = min(begin + size, axes[axis])
        cut = {
            name: value[(slice(None),) * along[name] + (slice(begin, end),)] if name in along else value
            for name, value in logical.items()
        }
        where = {
            name: (at, begin // unit * length, min(-(-end // unit) * length, like[name][0][at]))
            for name, (at, length) in outputs.items()
        }
        yield _Cut(cut, {**axes, axis: end - begin}, where)


def _outside(
    peer: Peer, asked: Sequence[Expected], theirs: Mapping[str, npt.NDArray[Any]], parts: Sequence[_Cut]
) -> dict[str, npt.NDArray[np.intp]] | None:
    """For each output, flat indices in C order at which the peer's value is outside of what its arithmetic admits; None
    if the bound would admit any value."""
    found: dict[str, list[npt.NDArray[np.intp]]] = {each.name: [] for each in asked}
    for part in parts:
        with np.errstate(invalid="ignore"):  # the bound for NaN and infinity does not count
            bounds = None if peer.error_bound is None else peer.error_bound(part.logical, part.axes)
        for each in asked:
            values = part.of(each.name, each.values)
            exact = values if each.exact is each.values else part.of(each.name, each.exact)
            admitted = _admitted(replace(each, values=values, exact=exact, error_bound=None), bounds)
            if (
                admitted.error_bound is not None
                and not (np.isfinite(admitted.error_bound) & (admitted.error_bound >= 0)).all()
            ):
                return None
            wrong = compare(admitted, part.of(each.name, theirs[each.name])).wrong
            found[each.name].append(part.flat(each.name, each.values.shape, wrong))
            del admitted
        del bounds
    return {name: np.sort(np.concatenate(wrong)) for name, wrong in found.items()}


def _confronted(
    expected: Expected, own: npt.NDArray[Any], theirs: npt.NDArray[Any], peer_wrong: npt.NDArray[np.intp]
) -> _OutputPair:
    own_wrong = compare(expected, own).wrong
    same = bits(own) == bits(theirs)
    differ = np.union1d(own_wrong, peer_wrong)
    alike = differ[same[differ]]
    differ = differ[~same[differ]]
    return _OutputPair(
        expected=expected,
        own=own,
        peer=theirs,
        differ=differ,
        kernel_wrong=np.intersect1d(differ, own_wrong),
        both_wrong=int(np.intersect1d(alike, own_wrong).size),
        largest=largest_difference(own, theirs),
    )


def _verdict(
    peer: Peer, sides: Sequence[_OutputPair], wrong: Sequence[_OutputPair], peer_wrong: bool, given: Mapping[str, Any]
) -> tuple[Status, str]:
    alike = sum(side.both_wrong for side in sides)
    remark = f"both have the same incorrect value in {_elements(alike)}" if alike else ""
    if not given:
        return Status.PASS, remark
    first: Divergence = given["first"]
    at = ", ".join(map(str, first.index))
    exact = f"{first.output}[{at}] is {given['exact']} exactly"
    values = f"{exact}; the kernel has {first.found}, the peer {first.expected}"
    count = sum(side.differ.size for side in sides)
    if peer_wrong:
        words = f"the peer is incorrect in {_elements(count)}, the kernel is correct: {values}"
        blank = [side.expected.name for side in sides if side.differ.size and (raw(side.peer) == POISON).all()]
        if blank:
            words += f"; the peer did not write {', '.join(blank)}"
        return Status.PASS, "; ".join(filter(None, (words, remark)))
    mistaken = sum(side.kernel_wrong.size for side in wrong)
    return Status.FAIL, "; ".join(
        filter(None, (f"they differ in {_elements(count)}, the kernel is incorrect in {mistaken}: {values}", remark))
    )


def _elements(count: int) -> str:
    return f"{count} element{'' if count == 1 else 's'}"


def _migration(status: Status, peer_wrong: bool, both_wrong: bool, collected: Collected) -> tuple[bool, str]:
    """Whether to use the kernel in the peer's place, with the reason."""
    if status is not Status.PASS:
        return False, "no: it differs, and the exact value shows that it is incorrect"
    if both_wrong:
        return False, "no: both have the same incorrect values"
    right = "the peer is incorrect and the kernel correct" if peer_wrong else "both are correct"
    ratio = collected.speedup
    if ratio is None:
        return False, f"no: not timed ({collected.untimed}); {right}"
    times = f"{ratio.median:.3g}x as fast ({ratio.low:.3g} to {ratio.high:.3g})"
    if ratio.pairs < LEAST_SAMPLES:
        return False, f"no: not distinguishable, only {counted(ratio.pairs, 'pair')} of samples; {right}"
    if ratio.low > 1:
        return True, f"yes: {right}, and it is {times}"
    if ratio.high < 1:
        return False, f"no: slower, {times}; {right}"
    return False, f"no: not distinguishable, {times}; {right}"


def _within_tenth(match: bool, speedup: Ratio | None) -> bool | None:
    """The lenient rule: whether both agree and the kernel takes at most 1.1x of the peer's time."""
    return None if speedup is None else match and 1 - 1 / speedup.median >= -_TENTH


def _shown(op: Op, key: KernelKey, axes: Axes, logical: Arrays, side: _OutputPair, at: int) -> dict[str, Any]:
    """The element on both sides, its exact value, and the inputs that produce it."""
    index = tuple(int(i) for i in np.unravel_index(at, side.own.shape))
    name = side.expected.name
    return {
        "first": Divergence(
            output=name, index=index, expected=str(side.peer.reshape(-1)[at]), found=str(side.own.reshape(-1)[at])
        ),
        "exact": str(side.expected.exact.reshape(-1)[at]),
        "inputs": meeting(op, key, name, index, logical, axes),
    }


def meeting(op: Op, key: KernelKey, output: str, index: tuple[int, ...], logical: Arrays, axes: Axes) -> dict[str, str]:
    """For each input, the values that produce one element of an output, as text: the element's place along shared axes,
    and everything along the others. An output whose size differs from its axes (a packed one) shares no axis."""
    tensor = next(each for each in op.outputs if each.name == output)
    shape, _ = op.outputs_like(axes, key)[output]
    placed = zip(tensor.axes, index, shape, strict=True) if len(shape) == len(tensor.axes) else ()
    # A dimension corresponds to its axis if it has that size, or if the workload does not name the axis.
    place = {axis: at for axis, at, size in placed if axes.get(axis, size) == size}
    found = {}
    for each in op.inputs:
        value = np.asarray(logical[each.name])
        where: list[Any] = [slice(None)] * value.ndim
        if value.ndim == len(each.axes):
            for dimension, axis in enumerate(each.axes):
                if axis in place and place[axis] < value.shape[dimension]:
                    where[dimension] = place[axis]
        label = each.name
        if any(part != slice(None) for part in where):
            label += "[" + ", ".join(":" if isinstance(part, slice) else str(part) for part in where) + "]"
        found[label] = shortened(value[tuple(where)])
    return found


def shortened(value: Any) -> str:
    """A number as it is; of an array the first elements, its shape and its range."""
    array = np.asarray(value)
    if not array.ndim:
        return str(array.item() if array.dtype.kind in "biu" else array[()])
    flat = array.reshape(-1)
    shown = ", ".join(str(each) for each in flat[:_SHOWN])
    if flat.size <= _SHOWN:
        return f"[{shown}]"
    return f"[{shown}, …] ({'x'.join(map(str, array.shape))} values from {flat.min()} to {flat.max()})"
