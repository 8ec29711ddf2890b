"""Which variants exist, which of them fit here, and which one to take. Nothing is assumed: an unknown device or feature is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tritmark.harness.errors import AmbiguousKernelError, NoCompatibleKernelError, RegistrationError
from tritmark.harness.spec import Axes, Device, KernelKey, Variant

LACKS = " lacks "
"""Stands in the refusal of a kernel that needs what this machine has not."""


class Registry:
    """Devices and variants. `register` refuses duplicates, `select_best` refuses ambiguity."""

    def __init__(self, devices: Iterable[Device] = (), variants: Iterable[Variant] = ()) -> None:
        self._devices: dict[str, Device] = {}
        self._variants: dict[KernelKey, dict[str, Variant]] = {}
        for device in devices:
            self.register_device(device)
        for variant in variants:
            self.register(variant)

    def register_device(self, device: Device) -> None:
        """Make a device type known. Raises RegistrationError for one that is known already."""
        if device.type in self._devices:
            raise RegistrationError(f"device type {device.type!r} is registered already")
        self._devices[device.type] = device

    def register(self, variant: Variant) -> None:
        """Add a variant. Raises RegistrationError for a duplicate name under the same key."""
        named = self._variants.setdefault(variant.key, {})
        if variant.name in named:
            raise RegistrationError(f"{variant.id} is registered already")
        named[variant.name] = variant

    @property
    def devices(self) -> Mapping[str, Device]:
        return self._devices

    @property
    def variants(self) -> list[Variant]:
        """Every variant, in the order of registration."""
        return [variant for named in self._variants.values() for variant in named.values()]

    def candidates(self, key: KernelKey, axes: Axes | None = None) -> list[tuple[Variant, str | None]]:
        """Each variant of the key with why it is refused here, or None. Without `axes`, shapes are not looked at.

        Where the device is missing, what it says about that is the refusal of all.
        """
        device = self._devices.get(key.device)
        variants = self._variants.get(key, {}).values()
        missing = device.missing() if device else f"unknown device type {key.device!r}"
        if device is None or missing is not None:
            return [(variant, missing) for variant in variants]
        features = device.features()
        return [(variant, _refusal(variant, device, features, axes)) for variant in variants]

    def has_kernel_for(self, device: str, op: str, format: str, dtype: str, axes: Axes | None = None) -> bool:
        """Whether some variant runs on this machine for that key and, where given, those axes."""
        return any(refusal is None for _, refusal in self.candidates(KernelKey(device, op, format, dtype), axes))

    def select_best(self, key: KernelKey, axes: Axes, name: str | None = None) -> Variant:
        """The fitting variant of the highest tier and rank, or the one called `name` if it fits.

        Where the environment forces a step of the device's ladder that the key has no variant for, the best one below that fits the
        machine is taken, if the machine has what the forced step needs.

        Raises NoCompatibleKernelError, which lists every candidate and why it was refused, and AmbiguousKernelError where two
        variants of the highest tier and rank fit.
        """
        device = self._devices.get(key.device)
        if device is None:
            known = ", ".join(self._devices) or "none"
            raise NoCompatibleKernelError(request=str(key), candidates=[(key.device, f"unknown device type; known: {known}")])
        found = self.candidates(key, axes)
        forced = name if name is not None else _forced(device, {variant.name for variant, _ in found})
        if forced is not None and device.missing() is None:
            lacking = sorted(device.ladder().get(forced, frozenset()) - device.features())
            asked = f"{forced!r} was asked for" + (f", and this {device.type}{LACKS}{', '.join(lacking)}" if lacking else "")
            found = [(v, refusal if v.name == forced else asked) for v, refusal in found]
        fitting = [variant for variant, refusal in found if refusal is None]
        if not fitting:
            shape = ", ".join(f"{axis}={size}" for axis, size in axes.items())
            request = f"{key} with {shape}" + (f", variant {forced!r}" if forced else "")
            raise NoCompatibleKernelError(request=request, candidates=[(v.name, refusal or "") for v, refusal in found])
        highest = max(variant.precedence for variant in fitting)
        best = [variant for variant in fitting if variant.precedence == highest]
        if len(best) > 1:
            names, (tier, rank) = ", ".join(variant.name for variant in best), highest
            raise AmbiguousKernelError(f"{key}: {names} are all of tier {tier.name} and rank {rank}; name one, or mend their tiers")
        return best[0]


def _forced(device: Device, names: set[str]) -> str | None:
    """Which of the variants the environment allows: the one that it names, or the best below where there is none for that step."""
    forced = device.forced()
    if forced is None or forced in names or device.missing() is not None:
        return forced
    ladder, has = device.ladder(), device.features()
    if forced not in ladder or not ladder[forced] <= has:
        return forced
    steps = list(ladder)
    return next((step for step in reversed(steps[: steps.index(forced)]) if step in names and ladder[step] <= has), forced)


def _refusal(variant: Variant, device: Device, features: frozenset[str], axes: Axes | None) -> str | None:
    missing = sorted(variant.features - features)
    if missing:
        return f"this {device.type}{LACKS}{', '.join(missing)}"
    for constraint in variant.constraints if axes is not None else ():
        reason = constraint.refusal(axes or {})
        if reason is not None:
            return reason
    return None
