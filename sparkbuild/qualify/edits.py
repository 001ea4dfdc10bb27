"""Seeded faults in PTX: one instruction made wrong, as a compiler with a defect would emit it.

Each edit changes one line of the text. Whether the probes notice is the measure of the probes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from sparkbuild.qualify.ptx.model import Function, Immediate, Instruction, Register

_SIGNS: Final = {"s8": "u8", "s16": "u16", "s32": "u32", "u8": "s8", "u16": "s16", "u32": "s32"}
_LOOSER: Final = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq",
                  "lo": "ls", "ls": "lo", "hi": "hs", "hs": "hi"}  # fmt: skip
_ORDERED: Final = frozenset({"sub", "shl", "shr", "div", "rem", "prmt", "shf"})
"""Opcodes whose first two sources are not the same the other way round."""
_TABLES: Final = frozenset({"global", "const", "shared"})
_ROUNDED: Final = {
    "rn": "rz", "rni": "rzi", "rz": "rn", "rzi": "rni", "rm": "rp", "rmi": "rpi",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One line made wrong; ``line`` counts from 1, ``index`` is the instruction's in the body."""

    kind: str
    line: int
    index: int
    before: str
    after: str

    def applied(self, text: str) -> str:
        """The text with the edit. Raises ValueError where it is not the text it was made for."""
        lines = text.split("\n")
        if lines[self.line - 1].strip() != self.before:
            raise ValueError(f"line {self.line} is {lines[self.line - 1].strip()!r}")
        lines[self.line - 1] = f"\t{self.after}"
        return "\n".join(lines)


_Maker = Callable[[Instruction, str], str | None]


def edits(function: Function, text: str, executed: Iterable[int]) -> tuple[Edit, ...]:
    """Every edit of instructions that were executed, in their order in the text.

    Lines that hold more than one instruction are left alone.
    """
    lines = text.split("\n")
    found = []
    for index in sorted(executed):
        instruction = function.body[index]
        before = lines[instruction.line - 1].strip()
        if before.count(";") != 1 or not before.endswith(";"):
            continue
        for kind, maker in MAKERS.items():
            after = maker(instruction, before)
            if after is not None and after != before:
                edit = Edit(
                    kind=kind, line=instruction.line, index=index, before=before, after=after
                )
                found.append(edit)
    return tuple(found)


def sample(found: Iterable[Edit], count: int, seed: int) -> tuple[Edit, ...]:
    """So many edits, the kinds as even as they can be, the same ones for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - a choice of tests, no secret
    by_kind: dict[str, list[Edit]] = {}
    for edit in found:
        by_kind.setdefault(edit.kind, []).append(edit)
    lists = list(by_kind.values())
    for there in lists:
        rng.shuffle(there)
    rng.shuffle(lists)
    return tuple(_in_turn(lists, count))


def _in_turn(lists: list[list[Edit]], count: int) -> Iterator[Edit]:
    while count > 0 and any(lists):
        for there in lists:
            if there and count > 0:
                yield there.pop()
                count -= 1


def _drop_mask(one: Instruction, line: str) -> str | None:
    """``and`` with a constant passes everything on."""
    if one.opcode != "and" or "pred" in one.modifiers or not isinstance(one.operands[2], Immediate):
        return None
    target, source = _names(line)[:2]
    return _with_guard(line, f"mov.{one.modifiers[-1]} {target}, {source};")


def _swap(one: Instruction, line: str) -> str | None:
    """Two sources change places."""
    both = one.operands[1:3]
    if one.opcode not in _ORDERED or len(both) < 2 or both[0] == both[1]:
        return None
    if not all(isinstance(operand, Register) for operand in both):
        return None
    words = _names(line)
    return _replaced(line, [words[0], words[2], words[1], *words[3:]])


def _shift(one: Instruction, line: str) -> str | None:
    """A constant shift is one place short."""
    if one.opcode not in {"shl", "shr", "bfe", "bfi"}:
        return None
    place = 2 if one.opcode in {"shl", "shr", "bfe"} else 3
    amount = one.operands[place]
    if not isinstance(amount, Immediate) or not 0 < amount.value < 64:
        return None
    words = _names(line)
    words[place] = str(amount.value - 1)
    return _replaced(line, words)


def _sign(one: Instruction, line: str) -> str | None:
    """A signed value is taken for an unsigned one, or the other way round."""
    if one.opcode not in {"cvt", "shr", "bfe", "mul", "mad", "dp4a", "ld", "max", "min"}:
        return None
    if one.opcode in {"mul", "mad"} and "lo" in one.modifiers:
        return None  # the low half is the same
    name = one.modifiers[-1]
    if name not in _SIGNS or (one.opcode == "ld" and name in {"u32", "s32"}):
        return None
    return _renamed(one, line, (*one.modifiers[:-1], _SIGNS[name]))


def _minus(one: Instruction, line: str) -> str | None:
    """A sum instead of a difference, a product without its sign."""
    if one.opcode == "sub":
        return line.replace("sub.", "add.", 1)
    if one.opcode == "neg":
        return _with_guard(line, f"mov.b{_bits(one)} {', '.join(_names(line))};")
    return None


def _index(one: Instruction, line: str) -> str | None:
    """A load takes the neighbour of what it should."""
    if one.opcode != "ld" or not _TABLES & set(one.modifiers):
        return None
    step = _bits(one) // 8 * next((int(m[1]) for m in one.modifiers if m in {"v2", "v4"}), 1)
    match = re.search(r"\[([^\]+]+)(?:\+(-?\d+))?\]", line)
    if match is None:
        return None
    offset = int(match[2] or 0) + step
    return line.replace(match[0], f"[{match[1]}+{offset}]", 1)


def _constant(one: Instruction, line: str) -> str | None:
    """An integer constant of an addition, a product or a lookup is one off."""
    if one.opcode not in {"add", "mad", "or", "prmt", "lop3", "xor"}:
        return None
    for place, operand in enumerate(one.operands[1:], start=1):
        if isinstance(operand, Immediate) and operand.kind == "int":
            words = _names(line)
            words[place] = str(operand.value ^ 1 if operand.value >= 0 else operand.value + 1)
            return _replaced(line, words)
    return None


def _barrier(one: Instruction, line: str) -> str | None:
    """A barrier is left out."""
    if one.opcode in {"bar", "barrier"}:
        return f"// {line[:-1]}"
    return None


def _rounding(one: Instruction, line: str) -> str | None:
    """Rounded another way."""
    place = next((n for n, m in enumerate(one.modifiers) if m in _ROUNDED), None)
    if place is None or one.opcode not in {"cvt", "fma", "add", "mul", "sub", "div", "sqrt"}:
        return None
    words = list(one.modifiers)
    words[place] = _ROUNDED[words[place]]
    return _renamed(one, line, tuple(words))


def _compare(one: Instruction, line: str) -> str | None:
    """A comparison is off by its edge."""
    place = next((n for n, m in enumerate(one.modifiers) if m in _LOOSER), None)
    if place is None or one.opcode not in {"setp", "set"}:
        return None
    words = list(one.modifiers)
    words[place] = _LOOSER[words[place]]
    return _renamed(one, line, tuple(words))


def _choice(one: Instruction, line: str) -> str | None:
    """The other one of two is chosen."""
    if one.opcode != "selp" or one.operands[1] == one.operands[2]:
        return None
    words = _names(line)
    return _replaced(line, [words[0], words[2], words[1], words[3]])


MAKERS: Final[dict[str, _Maker]] = {
    "mask dropped": _drop_mask,
    "operands swapped": _swap,
    "shift short": _shift,
    "sign": _sign,
    "plus for minus": _minus,
    "table index": _index,
    "constant": _constant,
    "barrier dropped": _barrier,
    "rounding": _rounding,
    "comparison": _compare,
    "other choice": _choice,
}


def _names(line: str) -> list[str]:
    """The operands as they are written, in their order."""
    rest = re.sub(r"^@!?\S+\s+", "", line).split(None, 1)[1].rstrip(";")
    return [word.strip() for word in re.split(r",(?![^{]*\})", rest)]


def _replaced(line: str, words: list[str]) -> str:
    head = re.match(r"(?:@!?\S+\s+)?\S+", line)
    return f"{head[0] if head else ''} {', '.join(words)};"


def _renamed(one: Instruction, line: str, modifiers: tuple[str, ...]) -> str:
    return line.replace(one.name, ".".join((one.opcode, *modifiers)), 1)


def _with_guard(line: str, instruction: str) -> str:
    guard = re.match(r"@!?\S+\s+", line)
    return f"{guard[0] if guard else ''}{instruction}"


def _bits(one: Instruction) -> int:
    match = re.search(r"\d+$", one.modifiers[-1])
    return int(match[0]) if match else 32
