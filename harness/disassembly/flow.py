"""Finds the loops of a function: basic blocks, dominators, natural loops (Aho, Lam, Sethi and Ullman, Compilers,
section 9.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction from a disassembler."""

    address: int
    mnemonic: str
    """The mnemonic with its modifiers."""
    operands: str
    target: int | None = None
    """Target address of a jump within the function."""
    falls: bool = True
    """Whether execution may continue with the next instruction."""
    indirect: bool = False
    """It jumps to an address in a register: anywhere in its function."""


_ATOMICS = ("RED", "ATOM")


def counted(instructions: Sequence[Instruction]) -> dict[str, int]:
    """Number of occurrences of each mnemonic, without modifiers (the part after the first point), the most frequent
    first.

    Atomics keep their operation: REDG.ADD, for REDG.E.ADD.STRONG.GPU.
    """
    return dict(Counter(_name(each.mnemonic) for each in instructions).most_common())


def _name(mnemonic: str) -> str:
    root, *modifiers = mnemonic.split(".")
    if not root.startswith(_ATOMICS):
        return root
    does = next(
        (each for each in modifiers if each in {"ADD", "MIN", "MAX", "AND", "OR", "XOR", "INC", "DEC", "EXCH", "CAS"}),
        "",
    )
    return f"{root}.{does}" if does else root


Blocks = list[tuple[Instruction, ...]]

NESTED = 10
"""Assumed iterations of a loop for one iteration of the loop around it, as in static profiles (Ball and Larus; Wu and
Larus)."""


@dataclass(frozen=True, slots=True)
class Loop:
    """An innermost loop."""

    instructions: tuple[Instruction, ...] = ()
    depth: int = 0
    """1 for an outermost loop."""

    @property
    def heat(self) -> int:
        """Estimated instructions that run in the loop for each call of its function."""
        return len(self.instructions) * int(NESTED**self.depth)


@dataclass(frozen=True, slots=True)
class Flow:
    """The loops of a function."""

    innermost: tuple[Loop, ...]
    depths: dict[int, int]
    """For the address of each instruction within loops, the number of these loops."""

    @property
    def hottest(self) -> Loop:
        """The innermost loop with the most heat; an empty Loop if there is none."""
        return max(self.innermost, key=lambda loop: loop.heat, default=Loop())


def flow(instructions: Sequence[Instruction]) -> Flow:
    """The loops of a function. An instruction that jumps to itself (a trap at a kernel's end) is not a loop."""
    blocks, following = _graph(instructions)
    if not blocks:
        return Flow((), {})
    order, before = _order(following)
    dominator = _dominators(order, before)
    loops: dict[int, set[int]] = {}
    for block in order:
        for head in following[block]:
            itself = head == block and len(blocks[block]) == 1
            if not itself and _dominates(head, block, dominator):
                # The blocks that reach the end of the loop without passing the head.
                loops.setdefault(head, {head}).update(_reachable(block, before, {head}))
    depth = {block: sum(block in body for body in loops.values()) for block in order}
    innermost = tuple(
        Loop(tuple(each for number in sorted(body) for each in blocks[number]), depth[head])
        for head, body in loops.items()
        if not any(other != head and other in body for other in loops)
    )
    return Flow(innermost, {each.address: depth[block] for block in order if depth[block] for each in blocks[block]})


def _graph(instructions: Sequence[Instruction]) -> tuple[Blocks, list[list[int]]]:
    """Basic blocks in the order of their addresses, and for each the numbers of its successors."""
    known = {each.address for each in instructions}
    leaders = {each.target for each in instructions if each.target in known}
    leaders |= {later.address for each, later in pairwise(instructions) if each.target is not None or not each.falls}
    blocks: Blocks = []
    current: list[Instruction] = []
    for each in instructions:
        if current and each.address in leaders:
            blocks.append(tuple(current))
            current = []
        current.append(each)
    if current:
        blocks.append(tuple(current))
    numbers = {block[0].address: number for number, block in enumerate(blocks)}
    following: list[list[int]] = []
    for number, block in enumerate(blocks):
        last = block[-1]
        after = [numbers[last.target]] if last.target in numbers else []
        if last.falls and number + 1 < len(blocks):
            after.append(number + 1)
        following.append(after)
    # The target of an indirect jump is unknown. Blocks that are otherwise unreachable count as successors of the
    # function's start.
    if any(block[-1].indirect for block in blocks):
        seen = _reachable(0, following, set())
        for number in range(len(blocks)):
            if number not in seen:
                following[0].append(number)
                _reachable(number, following, seen)
    return blocks, following


def _reachable(start: int, following: list[list[int]] | dict[int, list[int]], seen: set[int]) -> set[int]:
    """Add to `seen` every block that is reachable from `start` without passing a block of `seen`. Returns `seen`."""
    waiting = [start]
    while waiting:
        block = waiting.pop()
        if block not in seen:
            seen.add(block)
            waiting += following[block]
    return seen


def _order(following: list[list[int]]) -> tuple[list[int], dict[int, list[int]]]:
    """The reachable blocks in reverse postorder, and for each its predecessors."""
    before: dict[int, list[int]] = {0: []}
    postorder: list[int] = []
    seen = {0}
    stack = [(0, iter(following[0]))]
    while stack:
        block, rest = stack[-1]
        for after in rest:
            before.setdefault(after, []).append(block)
            if after not in seen:
                seen.add(after)
                stack.append((after, iter(following[after])))
                break
        else:
            postorder.append(block)
            stack.pop()
    return postorder[::-1], before


def _dominators(order: list[int], before: dict[int, list[int]]) -> dict[int, int]:
    """Each block's immediate dominator (Cooper, Harvey and Kennedy, A Simple, Fast Dominance Algorithm)."""
    place = {block: number for number, block in enumerate(order)}
    dominator = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [each for each in before[block] if each in dominator]
            new = known[0]
            for each in known[1:]:
                other = each
                while new != other:
                    while place[new] > place[other]:
                        new = dominator[new]
                    while place[other] > place[new]:
                        other = dominator[other]
            if dominator.get(block) != new:
                dominator[block] = new
                changed = True
    return dominator


def _dominates(head: int, block: int, dominator: dict[int, int]) -> bool:
    while block != head:
        if dominator[block] == block:
            return False
        block = dominator[block]
    return True
