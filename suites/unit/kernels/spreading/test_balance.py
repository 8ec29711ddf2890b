"""The assignment of tensors to GPUs, on a simulated clock, with GPUs of any speeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from heapq import heappop, heappush

from hypothesis import given
from hypothesis import strategies as st

from tritmark.kernels.spreading.balance import Balance, GpuPlace

SLOW, FAST = GpuPlace("slow", 0), GpuPlace("fast", 0)
Speed = Callable[[float], float]
"""A GPU's work per second and place, over time."""


def simulated(
    work: dict[int, int], speeds: dict[str, Speed], *, places: int = 1, fails: dict[str, int] | None = None
) -> tuple[dict[int, str], float, Balance[int]]:
    """The assignment and the end of all work, if a GPU fails at its tensor of that number (from 1)."""
    every = [GpuPlace(device, number) for number in range(places) for device in speeds]
    balance, now = Balance(work, every), 0.0
    idle, ends, made_by = list(every), list[tuple[float, int, GpuPlace, int]](), dict[int, str]()
    taken: Counter[str] = Counter()
    while balance.waiting or ends:
        for place in list(idle):
            name = balance.take(place, now)
            if name is not None:
                idle.remove(place)
                taken[place.device] += 1
                heappush(ends, (now + work[name] / speeds[place.device](now), every.index(place), place, name))
        if not ends:
            break
        asks_again = now + (balance.patience(now) or 0.0)
        if idle and balance.waiting and now < asks_again < ends[0][0]:
            now = asks_again
            continue
        now, _, place, name = heappop(ends)
        if taken[place.device] >= (fails or {}).get(place.device, 1 << 30):
            balance.close(place)
            balance.close_device(place.device)
            idle = [each for each in idle if each.device != place.device]
            continue
        balance.done(place, now)
        assert name not in made_by, "each once"
        made_by[name] = place.device
        idle.append(place)
    return made_by, now, balance


def steady(**speeds: float) -> dict[str, Speed]:
    return {device: (lambda now, speed=speed: speed) for device, speed in speeds.items()}  # type: ignore[misc]


WORK = st.lists(st.integers(1, 1000), min_size=1, max_size=60).map(lambda sizes: dict(enumerate(sizes)))
SPEEDS = st.lists(st.integers(1, 50), min_size=1, max_size=5).map(
    lambda speeds: steady(**{f"gpu{index}": float(speed) for index, speed in enumerate(speeds)})
)


@given(WORK, SPEEDS, st.integers(1, 3))
def test_everything_is_done_once_and_soon(work: dict[int, int], speeds: dict[str, Speed], places: int) -> None:
    made_by, end, balance = simulated(work, speeds, places=places)
    assert made_by.keys() == work.keys()
    assert not balance.waiting
    # Until each GPU's rate is known no place waits; that lasts at most as long as the largest tensor takes on the
    # slowest GPU. Afterwards a place waits only if another will finish the tensor sooner, and all were busy until then.
    rates = [Fraction(speed(0)) for speed in speeds.values()]
    longest = Fraction(max(work.values())) / min(rates)
    assert Fraction(end) <= sum(work.values()) / (places * sum(rates)) + 2 * longest + Fraction(1, 10**6)


@given(WORK, SPEEDS, st.data())
def test_what_a_gpu_had_begun_when_it_failed_is_done_by_another(
    work: dict[int, int], speeds: dict[str, Speed], data: st.DataObject
) -> None:
    fails = data.draw(st.dictionaries(st.sampled_from(sorted(speeds)), st.integers(1, 5)))
    made_by, _, balance = simulated(work, speeds, places=2, fails=fails)
    for device, number in fails.items():
        assert sum(each == device for each in made_by.values()) <= number + 1, "and what was under way beside it"
    if fails.keys() != speeds.keys():
        assert made_by.keys() == work.keys()
    assert balance.waiting == len(work) - len(made_by)
    assert balance.open() or made_by.keys() == work.keys() or fails.keys() == speeds.keys()


def test_a_slow_gpu_takes_less() -> None:
    made_by, end, balance = simulated(dict.fromkeys(range(100), 10), steady(fast=40.0, slow=10.0))
    assert Counter(made_by.values()) == {"fast": 80, "slow": 20}
    assert end == 20.0, "all of the work over both rates"
    assert balance.rates() == {"fast": 40.0, "slow": 10.0}


def test_a_gpu_that_becomes_slow_takes_less_from_then_on() -> None:
    speeds = steady(steady=10.0) | {"tiring": lambda now: 10.0 if now < 50 else 1.0}
    made_by, _, _ = simulated(dict.fromkeys(range(400), 10), speeds)
    shares = Counter(made_by.values())
    assert shares["tiring"] < 50 + (400 - 100) / 2
    assert shares["steady"] > 2 * shares["tiring"]


def test_a_slow_gpu_does_not_take_the_last_large_one() -> None:
    balance = Balance({"first": 10, "second": 10, "large": 9, "small": 1}, [SLOW, FAST])
    assert [balance.take(place, 0.0) for place in (SLOW, FAST)] == ["first", "second"]
    balance.done(FAST, 1.0)
    balance.done(SLOW, 10.0)
    assert balance.take(SLOW, 10.0) == "small", "the fast one would have done both at 11.0, and this one then too"
    assert balance.take(FAST, 10.0) == "large"


def test_nobody_waits_for_one_that_takes_longer_than_expected() -> None:
    balance = Balance({"a": 10, "b": 10, "c": 2, "d": 1}, [SLOW, FAST])
    assert [balance.take(place, 0.0) for place in (SLOW, FAST)] == ["a", "b"]
    balance.done(FAST, 1.0)
    assert balance.take(FAST, 1.0) == "c"
    balance.done(FAST, 1.2)
    assert balance.take(FAST, 1.2) == "d", "nothing is known of the other, but that it is not done"


def test_the_last_place_of_a_gpu_takes_small_ones_from_the_beginning() -> None:
    places = [GpuPlace("gpu", number) for number in range(3)]
    work = {f"large {number}": 100 for number in range(4)} | {f"small {number}": 10 for number in range(6)}
    balance = Balance(work, places)
    taken = [balance.take(place, 0.0) for place in places]
    assert taken == ["large 0", "large 1", "small 2"], "three small ones, of 25 and more, are kept for the end"
    for now in range(1, 3):
        balance.done(places[2], now)
        assert balance.take(places[2], now) == f"small {2 - now}"
    balance.done(places[2], 3.0)
    assert balance.take(places[2], 3.0) == "large 2", "none but those that are kept"


def test_the_only_place_that_is_left_of_a_gpu_takes_the_largest_first() -> None:
    places = [GpuPlace("gpu", number) for number in range(2)]
    balance = Balance({"large": 100, "larger": 101, "largest": 102} | dict.fromkeys(range(9), 10), places)
    assert balance.take(places[0], 0.0) == "largest"
    balance.close(places[0])
    assert balance.take(places[1], 0.0) == "largest"


def test_a_slow_gpu_takes_no_small_one_that_would_outlast_all_others() -> None:
    slow, fast = (GpuPlace("slow", 1), GpuPlace("slow", 0)), (GpuPlace("fast", 1), GpuPlace("fast", 0))
    balance = Balance(dict.fromkeys(range(4), 100) | {4: 80, 5: 80, 6: 80}, [*slow, *fast])
    assert [balance.take(place, 0.0) for place in (slow[1], fast[1])] == [0, 1]
    balance.done(fast[1], 1.0)
    assert balance.take(fast[1], 1.0) == 2
    balance.done(slow[1], 90.0)
    assert balance.take(slow[0], 90.0) is None, "80 take it 72 s; the fast one does all that waits in 3"
    assert balance.take(fast[0], 90.0) in (4, 5, 6)
