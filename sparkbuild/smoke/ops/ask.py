"""Questions as runs of the program: filters made, a crash split off, the rest asked again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sparkbuild.smoke.ops.console import Case
from sparkbuild.smoke.ops.need import Need
from sparkbuild.smoke.ops.session import Crash, Ran
from sparkbuild.smoke.ops.suite import HEADS, TYPES, Question

_DRAWS: Final = 2
"""Further ones of a case that was wrong by little."""
_ANY_HEADS: Final = r"hsk=\d+,hsv=\d+"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question of a model; ``without`` are parameters of cases that ended the process."""

    question: Question
    pattern: str
    types: tuple[str, ...]
    planned: tuple[str, ...]
    """Parameters of the cases that upstream has for it, in upstream's order."""
    without: tuple[str, ...] = ()

    @property
    def filter(self) -> str:
        """A regular expression for ``-p``, true of its cases alone."""
        left_out = "|".join(re.escape(parameters) for parameters in self.without)
        ahead = f"(?!(?:{left_out})$)" if left_out else ""
        types = "|".join(map(re.escape, self.types))
        return f"^{ahead}{self.pattern.removeprefix('^').replace(TYPES, f'(?:{types})')}"

    def holds(self, case: Case) -> bool:
        """Whether a case is one of it."""
        if case.op != self.question.op:
            return False
        return self.question.fused or bool(re.search(self.filter, case.parameters))


@dataclass(frozen=True, kw_only=True)
class Found:
    """A crash: the operator, its type, the case; ``alone``, whether that ends it again alone.

    ``case`` is empty where it is not known which case it was.
    """

    op: str
    type: str
    case: str
    alone: bool | None
    crash: Crash


@dataclass(kw_only=True)
class Answers:
    """What runs told, together."""

    cases: dict[str, Case] = field(default_factory=dict)
    crashes: list[Found] = field(default_factory=list)
    unallocated: set[str] = field(default_factory=set)
    near: dict[str, Case] = field(default_factory=dict)
    """Cases that were wrong by little once, and right in every further draw."""
    stopped: str = ""
    """Why the rest was not asked."""

    def take(self, ran: Ran) -> None:
        """Add a run's cases."""
        self.cases.update({case.name: case for case in ran.cases})
        self.unallocated.update(ran.unallocated)


def resolve(
    questions: Iterable[Question], need: Need, listing: Mapping[str, Sequence[str]], backend: str
) -> tuple[Asked, ...]:
    """Questions with the model's types and heads; those in whose role the model has none fall away.

    ``listing`` has the parameters of all of upstream's cases by operator. Where upstream has no
    case with a head of the model's sizes, all sizes are asked.
    """
    found = []
    for one in questions:
        types = need.of(one.role) if one.role else ()
        if one.role and not types:
            continue
        pattern = one.small if backend == "cpu" and one.small is not None else one.pattern
        here = listing.get(one.op, ())
        asked = Asked(
            question=one,
            pattern=pattern.replace(HEADS, _heads(need, here)),
            types=types,
            planned=(),
        )
        compiled = re.compile(asked.filter)
        planned = tuple(parameters for parameters in here if compiled.search(parameters))
        found.append(replace(asked, planned=() if one.fused else planned))
    return tuple(found)


def _heads(need: Need, listing: Sequence[str]) -> str:
    sizes = sorted(f"hsk={key},hsv={value}" for key, value in need.heads)
    there = [size for size in sizes if any(f"{size}," in parameters for parameters in listing)]
    return f"(?:{'|'.join(there)})" if there else _ANY_HEADS


def batches(asked: Iterable[Asked]) -> dict[str, tuple[Asked, ...]]:
    """What can be asked in one run: one filter of parameters has to serve all of it.

    Quantising to IQ1 and IQ2 needs tables that take most of a minute to make, once a run: all types
    of weights are asked together.
    """
    found: dict[str, tuple[Asked, ...]] = {}
    for one in asked:
        question = one.question
        if question.role:
            name = "cache" if question.role == "cache" else "weights"
        else:
            name = question.op if question.fused or one.pattern else "other operators"
        found[name] = (*found.get(name, ()), one)
    return found


def arguments(device: str, asked: Sequence[Asked]) -> tuple[str, ...]:
    """The program's arguments for one batch."""
    names = ",".join(dict.fromkeys(one.question.op for one in asked))
    filters = dict.fromkeys(one.filter for one in asked)
    only = () if set(filters) == {"^"} else ("-p", "|".join(f"(?:{f})" for f in filters))
    return ("-b", device, "-o", names, *only)


def ask(
    asked: Sequence[Asked],
    device: str,
    run: Callable[[tuple[str, ...]], Ran],
    *,
    crashes: int,
    answers: Answers,
    order: Sequence[tuple[str, str]],
) -> None:
    """Ask a batch until all of it has ended, or has ended the process.

    A crash is blamed on the first case, in upstream's ``order``, after the last that ended; that
    one is asked alone, and then the rest without it (of a question with types: without its type).
    After ``crashes`` of them in all the rest is left.
    """
    waiting = [tuple(asked)]
    while waiting:
        left = waiting.pop(0)
        ran = run(arguments(device, left))
        answers.take(ran)
        if ran.crash is None:
            continue
        if ran.crash.over:
            answers.stopped = ran.crash.kind
            return
        guilty, parameters = _guilty(left, ran, order)
        answers.crashes.append(
            Found(
                op=guilty.question.op,
                type=guilty.question.type_of(parameters or ""),
                case=f"{guilty.question.op}({parameters})" if parameters else "",
                alone=_alone(guilty, parameters, device, run, answers),
                crash=ran.crash,
            )
        )
        if len(answers.crashes) >= crashes:
            answers.stopped = f"{crashes} crashes"
            return
        rest = (_unfinished(part, answers) for part in _split(left, guilty, parameters))
        waiting += [part for part in rest if part]


def ask_again(
    device: str, run: Callable[[tuple[str, ...]], Ran], *, near: float, answers: Answers
) -> None:
    """Ask what was wrong by less than ``near`` times its bound in further draws.

    What is right in all of them counts as right, and is in ``answers.near``. Not where a process
    ended: then there is more to look for.
    """
    first = {
        name: case
        for name, case in answers.cases.items()
        if case.error is not None and case.bound and case.error < near * case.bound
    }
    if not first or answers.crashes or answers.stopped:
        return
    right: dict[str, list[Case]] = {name: [] for name in first}
    for _ in range(_DRAWS):
        ran = run(("-b", device, "-o", ",".join(first)))
        for case in ran.cases:
            if case.state == "ok":
                right[case.name].append(case)
    for name, cases in right.items():
        if len(cases) >= _DRAWS:
            answers.cases[name], answers.near[name] = cases[-1], first[name]


def _guilty(
    left: Sequence[Asked], ran: Ran, order: Sequence[tuple[str, str]]
) -> tuple[Asked, str | None]:
    """The question, and the parameters of its case, that were computed when the process ended."""
    mine = {(one.question.op, p): one for one in left for p in one.planned}
    row = [pair for pair in order if pair in mine]
    ended = {(case.op, case.parameters) for case in ran.cases}
    at = max((index for index, pair in enumerate(row) if pair in ended), default=-1) + 1
    if at >= len(row):
        return left[-1], None
    return mine[row[at]], row[at][1]


def _alone(
    guilty: Asked,
    parameters: str | None,
    device: str,
    run: Callable[[tuple[str, ...]], Ran],
    answers: Answers,
) -> bool | None:
    if parameters is None:
        return None
    ran = run(("-b", device, "-o", f"{guilty.question.op}({parameters})"))
    answers.take(ran)
    return ran.crash is not None


def _split(
    left: Sequence[Asked], guilty: Asked, parameters: str | None
) -> tuple[tuple[Asked, ...], ...]:
    """What is left without what ended the process, as batches.

    Without one of its types a question stays with the others. Without a case it has to be asked by
    itself: another operator's case may have the same parameters.
    """
    others = tuple(one for one in left if one is not guilty)
    if parameters is None:
        return (others,)
    type_ = guilty.question.type_of(parameters)
    if type_ in guilty.types:
        smaller = replace(
            guilty,
            types=tuple(kind for kind in guilty.types if kind != type_),
            planned=tuple(p for p in guilty.planned if guilty.question.type_of(p) != type_),
        )
        return ((*others, smaller),)
    smaller = replace(
        guilty,
        without=(*guilty.without, parameters),
        planned=tuple(p for p in guilty.planned if p != parameters),
    )
    return others, (smaller,)


def _unfinished(part: tuple[Asked, ...], answers: Answers) -> tuple[Asked, ...]:
    return tuple(
        one
        for one in part
        if any(f"{one.question.op}({p})" not in answers.cases for p in one.planned)
    )
