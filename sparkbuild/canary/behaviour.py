"""What a server owes every request, whatever its model knows: the answer that it gave before.

Nothing is recorded for this: answers are compared with each other. What is asked is chosen from
the suite, the same in every pass.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import httpx

from sparkbuild.canary import cached, choice
from sparkbuild.canary.ask import trouble
from sparkbuild.canary.model import BEHAVIOUR, Item
from sparkbuild.canary.numbers import SLOT, continued
from sparkbuild.canary.same import holes, nmse, parted, tokens_parted
from sparkbuild.canary.session import Check, Finding, Session, whole
from sparkbuild.canary.suite import Answer, Reference, Suite
from sparkbuild.llama.client import UnexpectedAnswerError

LONG_RUN: Final = 300
"""Tokens: faulty caches in 8 bits garbled answers within the first 150 (llama.cpp issue 23693)."""
IDLE: Final = 10.0
"""Seconds for slots to be idle after a client has gone: llama-server looks once a second."""
_POLL: Final = 0.02
"""Seconds between two looks at the slots."""
_TOP: Final = 4
"""Most likely tokens of the long run. A NaN anywhere in a position makes each of them NaN."""
_SHOWN: Final = 200
"""Characters of a value that an item quotes."""


def checks(suite: Suite, slots: int) -> list[Check]:
    """What a server with so many slots is asked with this suite, in order.

    What needs slot 0 alone comes first: where slots share a cache, what others have left there
    moves the last bits.
    """
    references = choice.references(suite)
    bits = "the same tokens and log-probabilities, bit for bit"
    found = [
        Check(name=f"{one.name}, twice", expected=bits, ask=partial(_twice, one))
        for one in references
    ]
    texts = [one for one in references if choice.is_text(one)]
    if texts:
        short, long = texts[0], texts[-1]
        found += [
            Check(
                name=f"{LONG_RUN} tokens, twice",
                expected="finite log-probabilities, and all of it again, bit for bit",
                ask=partial(_long_run, long),
            ),
            Check(
                name=f"{short.name}, after {LONG_RUN} tokens",
                expected=bits,
                ask=partial(_once_more, short),
            ),
            Check(
                name=f"{short.name}, after requests that were broken off",
                expected=f"{bits}, and {slots} idle slots",
                ask=partial(_broken_off, short, long),
            ),
        ]
    for number, one in enumerate(references if slots > 1 else ()):
        slot = SLOT + 1 + number % (slots - 1)
        found.append(
            Check(
                name=f"{one.name}, in slot {slot}",
                expected="the same tokens, log-probabilities within the bound",
                ask=partial(_in_slot, one, slot),
            )
        )
    found += cached.checks(suite, slots)
    together: tuple[tuple[str, Callable[[Session], list[Answer]]], ...] = (
        ("answers at the same time", _various),
        ("a long prompt beside short ones", _beside_a_long_one),
    )
    if suite.answers:
        same = "texts, calls, ends and token counts as alone"
        for name, choose in together:
            found.append(Check(name=name, expected=same, ask=partial(_at_once, choose)))
    return found


def context(suite: Suite) -> int:
    """Tokens that the longest run needs with its prompt; 0 where there is none."""
    texts = [len(one.prompt) for one in choice.references(suite) if choice.is_text(one)]
    return max(texts) + LONG_RUN if texts else 0


def behaviours(session: Session, on_item: Callable[[Item], None]) -> list[Item]:
    """Every check's item. Once no answer comes nothing more is asked."""
    items: list[Item] = []
    silent = ""
    for check in checks(session.suite, session.slots):
        started = time.monotonic()
        try:
            found = Finding(wrong=f"not asked: {silent}") if silent else check.ask(session)
        except (httpx.HTTPError, UnexpectedAnswerError) as error:
            found = Finding(wrong=trouble(session.server, error))
            if isinstance(error, httpx.TransportError):
                silent = f"no answer came to {check.name!r}"
        items.append(
            Item(
                name=check.name,
                group=BEHAVIOUR,
                passed=not found.wrong,
                expected=check.expected,
                found=found.wrong or found.well,
                seconds=round(time.monotonic() - started, 3),
                nmse=found.nmse,
                bound=found.bound,
            )
        )
        on_item(items[-1])
    return items


def _twice(reference: Reference, session: Session) -> Finding:
    before = session.first(reference)
    return Finding(wrong=holes(before) or _once_more(reference, session).wrong)


def _once_more(reference: Reference, session: Session) -> Finding:
    before, now = session.first(reference), session.ask(reference)
    return Finding(wrong=parted(before, now, vocabulary=session.suite.vocabulary))


def _in_slot(reference: Reference, slot: int, session: Session) -> Finding:
    """Numbers may differ in their last bits: a GPU may choose kernels by where a cache lies."""
    before, now = session.first(reference), session.ask(reference, slot)
    value, bound = nmse(before, now, session.suite.vocabulary), session.bound.of(reference)
    told = f"NMSE {value:.3g}"
    wrong = tokens_parted(before, now)
    if wrong:
        wrong = f"{wrong}; {told}"
    elif not value <= bound:  # a NaN compares as False
        wrong = f"{told}, expected at most {bound:g}"
    value_or_none = None if math.isnan(value) else value
    return Finding(wrong=wrong, well=told, nmse=value_or_none, bound=bound)


def _long_run(reference: Reference, session: Session) -> Finding:
    run = partial(
        continued, session.api, reference.prompt, {}, count=LONG_RUN, vocabulary=_TOP, slot=SLOT
    )
    before, now = run(), run()
    wrong = holes(before)
    if len(before.tokens) != LONG_RUN:
        wrong = f"{len(before.tokens)} tokens, stop_type {before.stop_type!r}"
    return Finding(wrong=wrong or parted(before, now))


def _broken_off(short: Reference, long: Reference, session: Session) -> Finding:
    """The next request does not wait for the slot to be idle: that would hide a race."""
    prompt = [part for part in long.prompt if isinstance(part, int)]
    wrong = ""
    for pieces in (0, 1):  # while the prompt is computed, and while the answer is
        session.api.break_off(prompt, count=LONG_RUN, slot=SLOT, after=pieces)
        wrong = wrong or _once_more(short, session).wrong
    deadline = time.monotonic() + IDLE
    while True:
        slots = session.api.slots()
        busy = [slot.id for slot in slots if slot.is_processing]
        if not busy or time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    if busy:
        wrong = f"{wrong}; " * bool(wrong) + f"slots {busy} are still busy after {IDLE:g} s"
    elif len(slots) != session.slots:
        wrong = f"{wrong}; " * bool(wrong) + f"{len(slots)} slots"
    return Finding(wrong=wrong, well=f"as before, {len(slots)} idle slots")


def _at_once(choose: Callable[[Session], list[Answer]], session: Session) -> Finding:
    entries = choose(session)
    pool = ThreadPoolExecutor(max_workers=len(entries))
    try:
        jobs = [pool.submit(session.answer, entry) for entry in entries]
        found = [whole(job.result()) for job in jobs]
    finally:  # no waiting: after Ctrl-C the server is stopped, which ends the requests
        pool.shutdown(wait=False, cancel_futures=True)
    wrong = []
    for entry, now in zip(entries, found, strict=True):
        before = session.alone(entry)[0]
        wrong += [
            f"{entry.name}: {key} {now[key]!r:.{_SHOWN}}, alone {before[key]!r:.{_SHOWN}}"
            for key in before
            if now[key] != before[key]
        ]
    names = ", ".join(entry.name for entry in entries)
    return Finding(wrong="; ".join(wrong), well=f"as alone: {names}")


def _various(session: Session) -> list[Answer]:
    return [session.clear(candidates) for candidates in choice.families(session.suite)]


def _beside_a_long_one(session: Session) -> list[Answer]:
    long = session.clear(choice.long_ones(session.suite))
    others = sorted(_various(session), key=choice.size)
    return [long, *(entry for entry in others if entry.name != long.name)][: choice.AT_ONCE]
