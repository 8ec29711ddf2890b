"""The registered variants, which of them fit here, and which one is selected. Unknown devices and features are
refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from threading import Lock

from tritmark.harness import tuned
from tritmark.harness.errors import AmbiguousKernelError, NoCompatibleKernelError, RegistrationError
from tritmark.harness.nearest import nearest
from tritmark.harness.numbered import device_of, kind_of, numbered, unnumbered, variants_of
from tritmark.harness.spec import Axes, Device, KernelKey, Requirement, Tier, Variant

_BY_NAME = {
    Tier.CANDIDATE: "a candidate is selected only by name",
    Tier.PEER: "a peer is selected only by name",
}
"""Why variants of a tier are never selected."""

ANY = "*"
"""The format in a question that also chooses the format."""

LACKS = " lacks "
"""Part of the refusal of a kernel that needs a feature that this machine lacks."""

ROWS = "M"
"""The axis of the rows of activations. It changes from call to call; the other axes are those of the weights."""


def shape_class(axes: Axes) -> dict[str, int]:
    """The shapes for which a choice between variants is valid: all axes are fixed except the rows, which range up to
    the next power of two. The result has the largest number of rows."""
    return {axis: 1 << (size - 1).bit_length() if axis == ROWS else size for axis, size in axes.items()}


def fewest(axes: Axes) -> dict[str, int]:
    """The smallest shape of a shape class: one row more than the largest of the class below."""
    return {axis: size // 2 + 1 if axis == ROWS else size for axis, size in shape_class(axes).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Asks which variant is the best at a requirement, for a shape class and a thread count."""

    place: str
    """The key, with "*" if the format is chosen, too, and the requirement. The device has no number: the identity
    distinguishes devices of one type."""
    requirement: Requirement
    threads: int
    axes: Mapping[str, int]
    """The shape class and the thread count: the best variant for one thread may not be the best for many, which share
    the memory bandwidth. 1 on a device with its own memory, where it means nothing."""
    candidates: tuple[Variant, ...]
    """The fitting variants, the built-in choice first."""
    refused: tuple[tuple[str, str], ...]
    """Ids of the other variants, and why they do not fit."""
    device: Device

    @property
    def builtin(self) -> Variant:
        """The variant with the highest tier and rank; of equals, the first registered."""
        return self.candidates[0]

    def identity(self) -> dict[str, str]:
        """The identity for which an answer is valid: that of the device, and as "code" the SHA-256 of all candidates
        with their code. Another candidate, or another build of one, makes it stale."""
        assert self.device.identity is not None  # else there are no questions
        reported = sorted((unnumbered(each.id), coded(self.device, each)) for each in self.candidates)
        return {**self.device.identity(), "code": sha256(repr(reported).encode()).hexdigest()}


class Registry:
    """Devices and variants. A registration takes effect immediately. All methods are thread-safe.

    `selects`: refuse variants with equal precedence. False for packages of other versions, whose variants are only
    listed.
    """

    def __init__(
        self, devices: Iterable[Device] = (), variants: Iterable[Variant] = (), *, selects: bool = True
    ) -> None:
        self._lock = Lock()
        self._selects = selects
        # These mappings are replaced and never modified, so readers need no lock.
        self._devices: Mapping[str, Device] = {}
        self._variants: Mapping[KernelKey, Mapping[str, Variant]] = {}
        self._strictest: dict[KernelKey, int] = {}
        """See strictest. A new one for new variants."""
        self._registered = 0
        for device in devices:
            self.register_device(device)
        self.register(*variants)

    def register_device(self, device: Device) -> None:
        """Register a device type. Raises RegistrationError for a duplicate."""
        with self._lock:
            if device.type in self._devices:
                raise RegistrationError(f"device type {device.type!r} is registered already")
            self._devices = {**self._devices, device.type: device}
            self._registered += 1

    def register(self, *variants: Variant) -> None:
        """Add variants, all or none.

        Raises RegistrationError for a duplicate name under the same key, and AmbiguousKernelError for the same tier and
        rank as another variant of the key.
        """
        with self._lock:
            made = dict(self._variants)
            for variant in (*variants, *self._numbered(variants)):
                named = made.get(variant.key, {})
                if variant.name in named:
                    raise RegistrationError(f"{variant.id} is registered already")
                if self._selects and not variant.tier.named_only:
                    for other in named.values():
                        if other.precedence == variant.precedence:
                            where = f"tier {variant.tier.name} and rank {variant.rank}"
                            raise AmbiguousKernelError(
                                f"{variant.id} and {other.name} both have {where}; next: change the rank of one"
                            )
                made[variant.key] = {**named, variant.name: variant}
            self._variants, self._strictest = made, {}
            self._registered += 1

    def _numbered(self, variants: Sequence[Variant]) -> Iterator[Variant]:
        """The same kernels for the registered devices with a number."""
        for name in self._devices:
            kind, index = numbered(name) or ("", 0)
            numbering = self._devices[kind].numbering if kind in self._devices else None
            if numbering is not None:
                yield from variants_of(numbering, index, kind, [each for each in variants if each.key.device == kind])

    def number(self, name: str) -> str | None:
        """Register the device with that number, such as "cuda:1", and all kernels of its type. Return why it does not
        exist; None if it exists or the name has no number."""
        if name in self._devices:
            return None
        kind, index = numbered(name) or ("", 0)
        of_kind = self._devices.get(kind)
        if of_kind is None:
            return None
        numbering = of_kind.numbering
        if numbering is None:
            return f"devices of type {kind} have no numbers; legal: {kind}"
        count = numbering.count()
        if index >= count:
            there = ", ".join(f"{kind}:{each} ({numbering.title(each)})" for each in range(count))
            return of_kind.missing() or f"there is no {name}; legal: {there}"
        with self._lock:
            if name not in self._devices:
                made = dict(self._variants)
                known = [variant for named in made.values() for variant in named.values()]
                for variant in variants_of(numbering, index, kind, known):
                    made[variant.key] = {**made.get(variant.key, {}), variant.name: variant}
                self._devices = {**self._devices, name: device_of(of_kind, numbering, index)}
                self._variants, self._strictest = made, {}
                self._registered += 1
        return None

    def every(self) -> list[Device]:
        """Every device of this machine, with numbers if there are several of a type."""
        found = []
        for kind, device in list(self._devices.items()):
            count = device.numbering.count() if device.numbering is not None else 1
            if numbered(kind) is None:
                names = [f"{kind}:{index}" for index in range(count)] if count > 1 else [kind]
                found += [self.device(name, name) for name in names]
        return found

    def number_all(self) -> None:
        """Register all devices with numbers."""
        for kind, device in list(self._devices.items()):
            for index in range(device.numbering.count() if device.numbering is not None else 0):
                self.number(f"{kind}:{index}")

    @property
    def version(self) -> int:
        """Grows with each registration, and each time measured choices are reloaded. Cached selections of an older
        version may be stale."""
        return self._registered + tuned.version()

    @property
    def devices(self) -> Mapping[str, Device]:
        return self._devices

    @property
    def variants(self) -> list[Variant]:
        """Every variant, in the order of registration."""
        return [variant for named in self._variants.values() for variant in named.values()]

    @property
    def without_peers(self) -> list[Variant]:
        """Every variant except peers, in the order of registration."""
        return [variant for variant in self.variants if variant.tier is not Tier.PEER]

    def candidates(self, key: KernelKey, axes: Axes | None = None) -> list[tuple[Variant, str | None]]:
        """Each variant of the key with why it is refused here, or None. Without `axes`, shapes are not checked.

        If the device is missing, the reason is the refusal of all variants.
        """
        self.number(key.device)
        return self._with_refusals(key, axes, self._variants.get(key, {}).values())

    def _with_refusals(
        self, key: KernelKey, axes: Axes | None, variants: Iterable[Variant], alignment: int | None = None
    ) -> list[tuple[Variant, str | None]]:
        device = self._devices.get(key.device)
        missing = device.missing() if device else f"unknown device type {key.device!r}"
        if device is None or missing is not None:
            return [(variant, missing) for variant in variants]
        features = device.features()
        return [(variant, _refusal(variant, device, features, axes, alignment)) for variant in variants]

    def device(self, type: str, request: str) -> Device:
        """The device with that type, or type and number, such as "cuda:1". Raises NoCompatibleKernelError for `request`
        if there is none, with the nearest or all existing names."""
        why = self.number(type)
        if type not in self._devices:
            why = why or f"unknown device type; {nearest(type, self._devices)}"
            raise NoCompatibleKernelError(request=request, candidates=[(type, why)])
        return self._devices[type]

    def has_kernel_for(self, device: str, op: str, format: str, dtype: str, axes: Axes | None = None) -> bool:
        """Whether a variant other than a peer runs on this machine for that key and, if given, those axes."""
        found = self.candidates(KernelKey(device, op, format, dtype), axes)
        return any(refusal is None and variant.tier is not Tier.PEER for variant, refusal in found)

    def select_best(
        self,
        key: KernelKey,
        axes: Axes,
        name: str | None = None,
        *,
        requirement: Requirement | None = None,
        threads: int | None = None,
        alignment: int | None = None,
    ) -> Variant:
        """The fitting variant with the highest tier and rank, except candidates and peers; or the variant `name`, of
        any tier, if it fits.

        With a `requirement`, the variant that `tritmark tune variants` measured as the best on this machine, for the
        shape class and thread count (by default the device's), if there is such a choice and no variant is forced.

        `alignment`: the least alignment of the call's arrays in bytes; variants that need more are refused. None: it
        is not known, or enough for all.

        If the environment forces an instruction set for which the key has no variant, the best lower one is selected,
        provided that the machine supports the forced one.

        Raises NoCompatibleKernelError, which lists each variant of the key with its refusal, and the nearest existing
        name for an unknown device or name.
        """
        device = self.device(key.device, str(key))
        variants = self._variants.get(key, {}).values()
        if name is not None and variants and name not in (known := [each.name for each in variants]):
            shape = ", ".join(f"{axis}={size}" for axis, size in axes.items())
            why = f"unknown variant; {nearest(name, known)}"
            raise NoCompatibleKernelError(request=f"{key} with {shape}, variant {name!r}", candidates=[(name, why)])
        # Variants that are selected only by name are not checked, because that may take longer than the call.
        looked_at = [each for each in variants if not each.tier.named_only or each.name == name]
        reported = dict(
            zip((each.name for each in looked_at), self._with_refusals(key, axes, looked_at, alignment), strict=True)
        )
        found = [reported.get(each.name, (each, _BY_NAME.get(each.tier))) for each in variants]
        forced = name if name is not None else _forced(device, {variant.name for variant, _ in found})
        if forced is not None and device.missing() is None:
            lacking = sorted(device.ladder().get(forced, frozenset()) - device.features())
            asked = f"{forced!r} was requested" + (
                f", and this {device.type}{LACKS}{', '.join(lacking)}" if lacking else ""
            )
            found = [(v, refusal if v.name == forced else asked) for v, refusal in found]
        fitting = [variant for variant, refusal in found if refusal is None]
        if not fitting:
            shape = ", ".join(f"{axis}={size}" for axis, size in axes.items())
            request = f"{key} with {shape}"
            if forced is not None:
                # A name from the environment exists, but not for this key.
                request += f", variant {forced!r}"
            raise NoCompatibleKernelError(request=request, candidates=[(v.name, refusal or "") for v, refusal in found])
        best = max(fitting, key=lambda variant: variant.precedence)
        if requirement is None or forced is not None:
            return best
        measured = self.measured((key,), axes, requirement, threads)
        if measured is None or (alignment is not None and measured.alignment > alignment):
            return best
        return measured

    def strictest(self, key: KernelKey) -> int:
        """The largest alignment in bytes that a variant of the key needs."""
        known = self._strictest  # read before the variants, so that old variants are never kept for new ones
        found = known.get(key)
        if found is None:
            variants = self._variants.get(key, {}).values()
            found = known[key] = max((each.alignment for each in variants), default=1)
        return found

    def question(
        self, keys: Sequence[KernelKey], axes: Axes, requirement: Requirement, threads: int | None
    ) -> Question:
        """The question which variant of these keys, of one device, op and dtype, is the best.

        Raises NoCompatibleKernelError if none fits, or if the device does not support measured choices.
        """
        where = keys[0]
        device = self.device(where.device, str(where))
        fitting: list[Variant] = []
        refused: list[tuple[str, str]] = []
        for key in keys:
            variants = list(self._variants.get(key, {}).values())
            refused += [(each.id, _BY_NAME[each.tier]) for each in variants if each.tier.named_only]
            for variant, refusal in self._with_refusals(
                key, axes, [each for each in variants if not each.tier.named_only]
            ):
                if refusal is None:
                    fitting.append(variant)
                else:
                    refused.append((variant.id, refusal))
        if not fitting or device.identity is None:
            if device.identity is None:
                refused = [(device.type, "does not support measured choices of variants")]
            raise NoCompatibleKernelError(request=f"a measured choice for {where}", candidates=refused)
        count = device.cores() if threads is None or device.memory is not None else threads
        format = where.format if len(keys) == 1 else ANY
        builtin = max(fitting, key=lambda variant: variant.precedence)
        return Question(
            place=f"{replace(where, device=kind_of(where.device), format=format)} {requirement}",
            requirement=requirement,
            threads=count,
            axes={**shape_class(axes), "threads": count},
            candidates=(builtin, *(each for each in fitting if each is not builtin)),
            refused=tuple(refused),
            device=device,
        )

    def measured(
        self, keys: Sequence[KernelKey], axes: Axes, requirement: Requirement, threads: int | None
    ) -> Variant | None:
        """The variant of these keys that was measured as the best; None if it was not measured on this machine with
        this build, if choices are off, or if the environment forces a variant."""
        device = self._devices.get(keys[0].device)
        if not tuned.known() or device is None or device.identity is None or device.forced() is not None:
            return None
        try:
            asked = self.question(keys, axes, requirement, threads)
        except NoCompatibleKernelError:
            return None
        found = tuned.chosen(asked.place, asked.axes, asked.identity)
        if found is None or found.builtin != unnumbered(asked.builtin.id):
            return None
        chosen = next((each for each in asked.candidates if unnumbered(each.id) == found.instance), None)
        if chosen is None or chosen is asked.builtin:
            return chosen
        return replace(chosen, tuned=f"{chosen.id} for {requirement}")


def coded(device: Device, variant: Variant) -> str:
    """The SHA-256 of the variant's code, or of what it is made from; "" if its builds cannot be distinguished."""
    return variant.code_hash or (device.source_hash or device.code_hash)(variant.id)


def _forced(device: Device, names: set[str]) -> str | None:
    """The variant that the environment forces: the one that it names, or the best lower one if there is none for that
    instruction set."""
    forced = device.forced()
    if forced is None or forced in names or device.missing() is not None:
        return forced
    ladder, has = device.ladder(), device.features()
    if forced not in ladder or not ladder[forced] <= has:
        return forced
    steps = list(ladder)
    return next(
        (step for step in reversed(steps[: steps.index(forced)]) if step in names and ladder[step] <= has), forced
    )


def _refusal(
    variant: Variant, device: Device, features: frozenset[str], axes: Axes | None, alignment: int | None
) -> str | None:
    lacking = sorted(variant.features - features)
    if lacking:
        return f"this {device.type}{LACKS}{', '.join(lacking)}"
    missing = variant.missing()
    if missing is not None:
        return missing
    for constraint in variant.constraints if axes is not None else ():
        reason = constraint.refusal(axes or {})
        if reason is not None:
            return reason
    if alignment is not None and variant.alignment > alignment:
        return (
            f"it needs arrays at multiples of {variant.alignment} bytes, and one is at a multiple of {alignment} only"
        )
    return None
