"""The part of cross-validation that runs in the candidate's process: a kernel and a peer on the same inputs,
interleaved. It has no expected values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.measure.alternate import Side, Timed, alternate, calibrate
from tritmark.harness.measure.buffers import HOST, fill, memory_of
from tritmark.harness.measure.clocks import PythonClock, clock_for
from tritmark.harness.measure.statistics import ENOUGH_SAMPLES, LEAST_SAMPLES, median
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, TimeLimit
from tritmark.harness.record import Ratio
from tritmark.harness.spec import Arrays, Axes, Device, KernelKey, Launch, Op, Peer, Variant
from tritmark.harness.validate.cases import is_array
from tritmark.harness.validate.ceiling import LAYOUT_NOISE

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed, PeerLibrary
    from tritmark.harness.worker.site import Site

BUDGET_S = 0.15
"""Seconds for which a kernel and a peer are timed interleaved, if the interval is not narrow earlier."""

_PATIENCE_S = 1.0
_SLOWEST_S = _PATIENCE_S / (2 * LEAST_SAMPLES)
"""A longer call cannot be timed often enough: each sample is preceded by one that does not count."""

POISON = 0xA5
"""Value of every byte of an output before the run."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Results of running a kernel and a peer. Can be pickled."""

    version: str = ""
    missing: str = ""
    """Why the peer is not installed or refuses the inputs; then no other field is set."""
    error: str = ""
    """The failure, and the side on which it happened."""
    own: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    peer: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    own_ns: float | None = None
    peer_ns: float | None = None
    speedup: Ratio | None = None
    untimed: str = "not requested"
    """Reason for missing times."""


def suited(peers: Iterable[Peer], key: KernelKey) -> list[Peer]:
    """Peers that are comparable with a kernel of that key."""
    return [peer for peer in peers if peer.op == key.op and key.format in peer.formats and key.dtype in peer.dtypes]


def collect(
    device: Device,
    op: Op,
    variant: Variant,
    peer: Peer,
    logical: Arrays,
    encoded: Arrays,
    axes: Axes,
    *,
    threads: int,
    seed: int,
    measure: bool = True,
    budget_s: float = BUDGET_S,
) -> Collected:
    """Run `variant` and `peer` once each on their own arrays, and return their outputs. With `measure`, time them
    interleaved and return the outputs written then, over new poison, so that a time is one of work done.

    `logical` are the op's inputs, `encoded` those for the variant's format. Exceptions of the variant are passed on;
    those of the peer are reported. Times are of repeated calls on the same arrays (hot). A peer that only Python can
    call is timed without the cost of such a call if its launch has `idle`, a Launch that costs the same and does
    nothing. Else a kernel on the host is timed through Python too, so that both pay that cost.
    """
    missing = peer.missing() or peer.refusal(axes)
    if missing:
        return Collected(missing=missing)
    version = peer.version()
    like = {name: (shape, named_dtype(dtype)) for name, (shape, dtype) in op.outputs_like(axes, variant.key).items()}
    own = _Side(device, encoded, like)
    launch = own.bind(variant.bind, axes, threads)
    own_s = _seconds(launch)
    mine = own.read(peer.outputs)
    try:
        taken = peer.encode(logical, axes)
    except InvalidArgumentError as error:
        return Collected(version=version, missing=f"it does not accept these inputs: {error}")
    except Exception as error:
        return Collected(version=version, error=f"the peer's encoding raised {type(error).__name__}: {error}")
    theirs = _Side(None, taken, {name: like[name] for name in peer.outputs})
    try:
        other = theirs.bind(peer.bind, axes, threads)
        peer_s = _seconds(other)
        found = Collected(version=version, own=mine, peer=theirs.read(peer.outputs))
        if not measure:
            return found
        if peer.reference:
            return replace(found, untimed="the peer is a reference, which is not written for speed")
        if device.simulated():
            return replace(found, untimed="a simulator has no speed")
        if max(own_s, peer_s) > _SLOWEST_S:
            slower = "the kernel" if own_s > peer_s else "the peer"
            return replace(
                found,
                untimed=f"a call of {slower} takes {max(own_s, peer_s):.2g} s, over {_SLOWEST_S:.2g} s",
            )
        pair = _Pair(device, launch, other)
        calibrate(pair.whole)
    except Exception as error:
        return Collected(version=version, error=f"the peer raised {type(error).__name__}: {error}")
    calibrate(pair.own)
    own.poison()
    theirs.poison()
    rng = np.random.default_rng([seed, *peer.name.encode()])
    times = alternate(pair.own, pair.peer, rng, _enough(budget_s))
    return replace(
        found,
        own=own.read(peer.outputs),
        peer=theirs.read(peer.outputs),
        own_ns=median(times.a_ns),
        peer_ns=median(times.b_ns),
        speedup=times.ratio(),
        untimed="",
    )


def _seconds(launch: Launch) -> float:
    """Duration of one run, first touches of its pages included."""
    begun = perf_counter()
    launch.run()
    return perf_counter() - begun


def _enough(budget_s: float) -> First:
    return First(
        MinimumSamples(ENOUGH_SAMPLES, Interval(2 * LAYOUT_NOISE)),
        MinimumSamples(LEAST_SAMPLES, TimeLimit(budget_s)),
        TimeLimit(_PATIENCE_S),
    )


def collect_task(
    site: Site,
    peer: str,
    libraries: Sequence[PeerLibrary],
    logical: Arrays,
    encoded: Arrays,
    axes: Axes,
    threads: int,
    seed: int,
    measure: bool,
) -> Collected:
    """`collect` for a worker. The peer is given by name and made in the worker. `libraries` are the same in all
    calls."""
    if "peers" not in site.kept:
        site.kept["peers"] = known(site.installed, libraries)
    found = {each.name: each for each in suited(site.kept["peers"], site.variant.key)}
    if peer not in found:
        return Collected(missing=f"not installed: the worker has no peer {peer!r} for {site.variant.key}")
    return collect(
        site.device,
        site.op,
        site.variant,
        found[peer],
        logical,
        encoded,
        axes,
        threads=threads,
        seed=seed,
        measure=measure,
    )


def known(installed: Installed, libraries: Sequence[PeerLibrary] = ()) -> tuple[Peer, ...]:
    """All peers: those of the providers, and the functions of their libraries and of the libraries that the user names.

    Raises UsageError for an invalid description of a library, and for two peers of one name for the same kernels.
    """
    brought = (library for provider in installed.providers.values() for library in provider.libraries())
    peers = (*installed.peers, *(peer for library in (*brought, *libraries) for peer in library.peers(installed)))
    places: dict[tuple[str, ...], Peer] = {}
    for peer in peers:
        for place in product((peer.name,), (peer.op,), peer.formats, peer.dtypes):
            if places.setdefault(place, peer) is not peer:
                raise UsageError(
                    f"two peers are called {peer.name!r} for {'/'.join(place[1:])}: {places[place].source} and "
                    f"{peer.source}; rename one of them"
                )
    return peers


class _Side:
    """Arrays of one side: copied inputs and poisoned outputs, in the device's memory (None: the host's)."""

    def __init__(
        self, device: Device | None, inputs: Arrays, like: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
    ) -> None:
        self._memory = HOST if device is None else memory_of(device)
        self._like = like
        self._inputs = dict(inputs)
        for name, value in inputs.items():
            if is_array(value):
                self._inputs[name] = self._memory.view(
                    self._memory.allocate(max(1, value.nbytes)), 0, value.shape, value.dtype
                )
                self._memory.write(self._inputs[name], np.ascontiguousarray(value))
        self._bytes = {name: prod(shape) * dtype.itemsize for name, (shape, dtype) in like.items()}
        self._buffers = {name: self._memory.allocate(max(1, nbytes)) for name, nbytes in self._bytes.items()}
        self._outputs = {
            name: self._memory.view(self._buffers[name], 0, shape, dtype) for name, (shape, dtype) in like.items()
        }
        self.poison()

    def poison(self) -> None:
        for name, nbytes in self._bytes.items():
            fill(self._memory, self._buffers[name], nbytes, POISON)

    def bind(self, bind: Callable[[Arrays, Arrays, Axes, int], Launch], axes: Axes, threads: int) -> Launch:
        return bind(self._inputs, self._outputs, axes, threads)

    def read(self, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
        found = {}
        for name in names:
            shape, dtype = self._like[name]
            found[name] = np.empty(shape, dtype)
            self._memory.read(self._outputs[name], found[name])
        return found


@dataclass(frozen=True, slots=True)
class _Net:
    """Calls without the call cost: an empty call is timed beside each sample."""

    whole: Timed
    empty: Timed

    def sample(self) -> float:
        """Nanoseconds of the work of a call; 1 if it is not measurable."""
        return max(1.0, self.whole.sample() - self.empty.sample())


class _Pair:
    """The interleaved sides: `own`, and `peer`, which is `whole` with or without the call cost."""

    def __init__(self, device: Device, launch: Launch, other: Launch) -> None:
        here = device.memory is None
        python = not here or other.pointer is None
        idle: Launch | None = getattr(other, "idle", None) if python else None
        self.whole = Timed([other], PythonClock() if python else clock_for(device, [other]), warm=True)
        self.own = Timed(
            [launch], PythonClock() if here and python and idle is None else clock_for(device, [launch]), warm=True
        )
        self.peer: Side = self.whole
        if idle is not None:
            empty = Timed([idle], PythonClock(), warm=True)
            calibrate(empty)
            self.peer = _Net(self.whole, empty)
