"""A long mixed run: texts and pictures in turn and at once, broken off, continued, restored.

What every request must be is known from a run of the same build without drafts. The order of steps
is fixed, so that two runs of one plan differ only in what the server does.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from sparkbuild.canary.suite import PICTURE, Answer
from sparkbuild.patch_bench import Bench, Drafts, Subject
from sparkbuild.patch_talk import Said, Talk

Messages = Sequence[Mapping[str, Any]]

HALF: Final = 0.5
"""Of what is accepted of texts has to be accepted after pictures."""
_SHORT: Final = range(9, 70)
"""Characters of an answer: longer ones only take time, of shorter ones nothing is drafted."""
_PAST: Final = 48
"""Tokens of an answer that goes on past its end, where drafts are rejected most of the time."""
_CACHE: Final = ("--cache-ram", "64")
"""MiB of earlier prompts that are kept: a slot then goes on with another one's."""
_CONTEXT: Final = 512
"""Tokens of a slot: two turns with pictures need more than the suite's longest question."""
_SEED: Final = 7


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request; ``name`` is the same for requests that must have the same answer."""

    name: str
    messages: Messages
    pictured: bool = False
    turns: int = 1
    past: bool = False


@dataclass(frozen=True, kw_only=True)
class Leave:
    """A request that its client gives up after so many pieces of the answer."""

    messages: Messages
    after: int


@dataclass(frozen=True, kw_only=True)
class Together:
    """Requests at the same time."""

    steps: tuple[Ask | Leave, ...]


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Save or restore every slot."""

    action: str


Step = Ask | Leave | Together | Slots


@dataclass(frozen=True, kw_only=True)
class Run:
    """What came of a plan: every request with its answer, and what became of the slots."""

    said: tuple[tuple[Ask, Said], ...]
    slots: tuple[int, ...]
    """Statuses."""

    def counts(self, *, turns: int, pictured: bool) -> tuple[int, int]:
        """Drafted and accepted of answers of one kind that were not driven past their end."""
        counts = [
            said.counts
            for ask, said in self.said
            if (ask.turns, ask.pictured, ask.past) == (turns, pictured, False)
        ]
        return sum(one[0] for one in counts), sum(one[1] for one in counts)


def checked(
    bench: Bench,
    subject: Subject,
    runs: Iterable[tuple[Drafts, int]],
    *,
    trained: bool = True,
    rounds: int = 1,
) -> None:
    """Run the plan without drafts, then with each of ``runs``, which are drafts and slots.

    After a run that is not well nothing more is run. Of a draft block that is not ``trained``
    nothing is said of how much is accepted.
    """
    steps = plan(subject, rounds)
    wanted = plain(bench, subject, steps)
    for drafts, slots in runs:
        model = f" {drafts.model.stem}" if drafts.model else ""
        what = f"{subject.name}, {drafts.kind}{model} of {drafts.most}, {slots} slots"
        with bench.serving(
            subject, slots=slots, drafts=drafts, context=_CONTEXT, flags=_CACHE, log=what
        ) as talk:
            run = _run(talk, steps, slots)
        _answered(bench, what, run, wanted)
        moves = f"{len(run.slots)} moves"
        bench.check(f"{what}, slots", well=set(run.slots) <= {200}, found=moves)
        bench.quiet(what, talk)
        _accepted(bench, what, run, trained=trained)
        if not bench.well:
            return


def plain(bench: Bench, subject: Subject, steps: Sequence[Step]) -> dict[str, frozenset[str]]:
    """Every request of a plan with its texts without drafts: one, where the model is sure."""
    log = f"{subject.name}, no drafts"
    with bench.serving(subject, context=_CONTEXT, flags=_CACHE, log=log) as talk:
        run = _run(talk, steps, 1)
    bench.quiet(log, talk)
    found: dict[str, frozenset[str]] = {}
    for ask, said in run.said:
        found[ask.name] = found.get(ask.name, frozenset()) | frozenset(said.texts)
    return found


def _answered(bench: Bench, what: str, run: Run, wanted: Mapping[str, frozenset[str]]) -> None:
    """All requests were answered, and with the texts that come without drafts."""
    bad = [f"{ask.name}: {said.status} {said.error}" for ask, said in run.said if not said.texts]
    asked = len(run.said)
    seen = sum(ask.pictured for ask, _ in run.said)
    found = f"{asked - len(bad)} of {asked}, {seen} with pictures"
    bench.check(f"{what}, answers", well=not bad, found="; ".join([found, *bad[:2]]))
    other = [
        f"{ask.name}: {said.texts[0]!r} for {sorted(wanted.get(ask.name, ()))!r}"
        for ask, said in run.said
        if said.texts and not set(said.texts) <= wanted.get(ask.name, frozenset())
    ]
    found = f"{asked - len(bad) - len(other)} as without drafts"
    bench.check(f"{what}, texts", well=not other, found="; ".join([found, *other[:2]]))


def plan(subject: Subject, rounds: int) -> tuple[Step, ...]:
    """The steps, the same for a subject whenever they are made."""
    usable = [one for one in subject.suite.answers if _usable(one)]
    texts = [one for one in usable if not _sees(one)]
    seen = [one for one in usable if _sees(one)] if subject.vision else []
    rng = random.Random(_SEED)  # noqa: S311 - the same steps every time is what is wanted
    steps: list[Step] = []
    for _ in range(rounds):
        short = [one for one in texts if len(one.text) in _SHORT and len(one.messages) == 1]
        some = rng.sample(short, 8)
        steps += _round(rng, some, rng.sample(seen, 6) if seen else [])
        double = [one for one in seen if str(one.messages).count(PICTURE) == 2]
        steps += [_ask(one) for one in double[:2]]
    return tuple(steps)


def _round(rng: random.Random, texts: list[Answer], seen: list[Answer]) -> Iterator[Step]:
    for number, picture in enumerate(seen):
        text, other = texts[number], texts[number + 1]
        yield _ask(text)
        yield _ask(picture)
        if number % 2:
            yield Leave(messages=picture.messages, after=number % 3)
            yield Leave(messages=text.messages, after=1 + number % 3)
        yield _on(picture, text)  # its beginning is in the cache
        yield _on(text, picture)
        yield _on(text, other)
        if number % 3 == 0:
            yield _ask(picture, past=True)
            yield _ask(text, past=True)
    if not seen:
        yield from (_on(one, other) for one, other in itertools.pairwise(texts))
    group: list[Ask | Leave] = [_ask(one) for one in (*texts[:4], *seen[:4])]
    rng.shuffle(group)
    yield Together(steps=tuple(group))
    last = (seen or texts)[-1]
    yield Together(steps=(*map(_ask, seen), Leave(messages=last.messages, after=0)))
    yield Slots(action="save")
    yield _ask(texts[7])
    yield Slots(action="restore")
    yield _ask(last)
    yield _on(last, texts[0])
    yield Slots(action="restore")
    yield _ask(texts[0])


def _ask(one: Answer, *, past: bool = False) -> Ask:
    name = f"{one.name}, past its end" if past else one.name
    return Ask(name=name, messages=one.messages, pictured=_sees(one), past=past)


def _on(first: Answer, then: Answer) -> Ask:
    """A second turn."""
    said = {"role": "assistant", "content": first.text}
    return Ask(
        name=f"{first.name}, then {then.name}",
        messages=(*first.messages, said, then.messages[-1]),
        turns=2,
        pictured=_sees(first) or _sees(then),
    )


def _run(talk: Talk, steps: Iterable[Step], slots: int) -> Run:
    said: list[tuple[Ask, Said]] = []
    moved: list[int] = []

    def do(step: Step) -> None:
        if isinstance(step, Ask):
            more = {"ignore_eos": True} if step.past else {}
            said.append((step, talk.chat(step.messages, count=_PAST if step.past else 60, **more)))
        elif isinstance(step, Leave):
            talk.break_off(step.messages, after=step.after)
        elif isinstance(step, Slots):
            moved.extend(talk.slot(n, step.action, f"mixed-{n}") for n in range(slots))
        else:
            with ThreadPoolExecutor(len(step.steps)) as pool:
                list(pool.map(do, step.steps))

    for step in steps:
        do(step)
    return Run(said=tuple(said), slots=tuple(moved))


def _accepted(bench: Bench, what: str, run: Run, *, trained: bool) -> None:
    """Like with like: a canary has seldom seen a second turn, and drafts less of it."""
    for turns in sorted({ask.turns for ask, _ in run.said}):
        (of_texts, texts), (of_seen, seen) = (
            run.counts(turns=turns, pictured=pictured) for pictured in (False, True)
        )
        pictured = any(ask.pictured for ask, _ in run.said)
        found = f"{texts} of {of_texts} of texts"
        found += f", {seen} of {of_seen} after pictures" if pictured else ""
        well = of_texts > 0 and (of_seen > 0 or not pictured)
        if trained and well and pictured:
            well = seen / of_seen >= HALF * texts / of_texts
        name = "accepted" if turns == 1 else f"accepted, {turns} turns"
        bench.check(f"{what}, {name}", well=well, found=found)


def _usable(one: Answer) -> bool:
    plain = not one.raw and not one.tools and not one.thinking and not one.forms
    return plain and all(message["role"] != "tool" for message in one.messages)


def _sees(one: Answer) -> bool:
    return PICTURE in json.dumps(one.messages)
