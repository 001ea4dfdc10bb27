"""Known answers, a long prompt, a long run, the same again, several at once, and the speed."""

from __future__ import annotations

import random
import re
from functools import partial
from typing import Final

from sparkbuild.files import sha256_bytes
from sparkbuild.llama.answers import hole
from sparkbuild.model.read import Model
from sparkbuild.smoke.served.session import Seen, Session, at_once, seen
from sparkbuild.smoke.served.speed import LEAST_TOKENS, active, fastest, limit
from sparkbuild.smoke.served.suite import Expected, LongRun, Needles, Question
from sparkbuild.smoke.served.talk import Reply
from sparkbuild.smoke.served.words import Wrong, judged, monotony, plain, shown, wanted

ANSWERS: Final = "answers"
LONG: Final = "long prompt"
RUN: Final = "long run"
TWICE: Final = "the same again"
TOGETHER: Final = "at the same time"
SPEED: Final = "speed"
NOT_A_NUMBER: Final = "no numbers"
_TOP: Final = 4
"""Most likely tokens of a repeated request: a NaN anywhere in a position makes each of them NaN."""
_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_DIGITS: Final = "23456789"
_FORMS: Final = {"A": _LETTERS, "9": _DIGITS, "X": _LETTERS + _DIGITS}


def questions(session: Session, *, every_way: bool = False) -> None:
    """Every question, or those that are asked in every way, one after another."""
    for one in session.suite.questions:
        if one.every_way or not every_way:
            ask = partial(_question, session, one)
            session.check(f"{ANSWERS}: {one.group}", one.name, wanted(one.expect), ask)


def _question(session: Session, one: Question) -> Seen:
    reply = session.talk.chat(one.name, one.user, system=one.system, count=one.count)
    session.replies.setdefault(one.name, reply)
    return seen(judged(reply, one.expect, session.suite.garble), shown(reply.content))


def long_prompt(session: Session, needles: Needles) -> None:
    """A fact at each place of a long text; a question for each, in a request of its own."""
    text, facts = haystack(needles)
    for place, (key, value) in zip(needles.at, facts, strict=True):
        prompt = text + needles.ask.format(key=key)
        name = f"needle at {place:.0%}"
        session.book.keep(f"prompts/needle-{round(100 * place)}.txt", prompt)
        expected = f"{value!r}, of at least {needles.least:,} tokens"
        session.check(LONG, name, expected, partial(_needle, session, needles, prompt, value, name))


def _needle(session: Session, needles: Needles, prompt: str, value: str, name: str) -> Seen:
    reply = session.talk.chat(name, prompt, count=needles.count)
    told = f"{reply.prompt_tokens:,} tokens, sha256 of the prompt {sha256_bytes(prompt.encode())}"
    expect = Expected(matches=rf"(?i)(?<!\w){re.escape(value)}(?!\w)")
    wrong = judged(reply, expect, session.suite.garble)
    if wrong is None and reply.prompt_tokens < needles.least:
        wrong = Wrong(text=f"only {told}")
    return seen(wrong, f"{shown(reply.content)}; {told}", prompt_tokens=reply.prompt_tokens)


def haystack(needles: Needles) -> tuple[str, list[tuple[str, str]]]:
    """The text before the question, and key and value of the fact at each place."""
    rng = random.Random(needles.seed)  # noqa: S311 - no secret
    pieces = rng.choices(needles.words, k=needles.pieces)
    facts: list[tuple[str, str]] = []
    for _ in needles.at:
        key = _form(rng, needles.keys)
        while key in dict(facts):
            key = _form(rng, needles.keys)
        facts.append((key, _form(rng, needles.values)))
    # From the end on: what is put in does not move what comes before it.
    for place, (key, value) in sorted(zip(needles.at, facts, strict=True), reverse=True):
        pieces.insert(round(place * needles.pieces), needles.needle.format(key=key, value=value))
    return needles.before + " ".join(pieces), facts


def _form(rng: random.Random, form: str) -> str:
    return "".join(rng.choice(_FORMS.get(character, character)) for character in form)


def long_run(session: Session, asked: LongRun) -> None:
    """So many tokens at a stretch, past any end; then a short question as it was before."""
    short = session.suite.question(asked.short)

    def run() -> Seen:
        prompt = session.talk.templated(asked.user)
        reply = session.talk.continued(RUN, prompt, count=asked.count, top=_TOP)
        problem = hole(reply.positions)
        if problem:
            return Seen(wrong=problem, group=NOT_A_NUMBER)
        wrong = monotony(reply.content, session.suite.garble) if asked.natural else ""
        if reply.tokens != asked.count:
            wrong = f"{reply.tokens} tokens"
        quoted = shown(reply.content)
        return Seen(wrong=f"{wrong}: {quoted}" if wrong else "", well=quoted, reason=asked.reason)

    session.check(RUN, f"{asked.count} tokens", "all of them, a text, no NaN", run)
    name = f"{short.name}, after {asked.count} tokens"
    again = partial(_again, session, short)
    session.check(RUN, name, "content, reasoning and token counts as before", again)


def _again(session: Session, one: Question) -> Seen:
    before = session.replies.get(one.name)
    if before is None:
        return Seen(wrong="there was no answer before")
    now = session.talk.chat(one.name, one.user, system=one.system, count=one.count)
    wrong = differs(before, now)
    return Seen(wrong=wrong, well=f"as before: {shown(now.content)}")


def twice(session: Session) -> None:
    """The same request two times: the same words and numbers, bit for bit; no NaN in them."""
    repeats = session.suite.twice
    for name in repeats.ask:
        one = session.suite.question(name)

        def again(one: Question = one) -> Seen:
            ask = partial(
                session.talk.chat, one.name, one.user, system=one.system, count=one.count, top=_TOP
            )
            before, now = ask(), ask()
            problem = hole(before.positions) or hole(now.positions)
            if problem:
                return Seen(wrong=problem, group=NOT_A_NUMBER)
            strict = repeats.strict
            wrong = differs(before, now) if strict else parted(session, one, before, now)
            well = f"{before.tokens} tokens and their log-probabilities"
            return Seen(wrong=wrong, well=well, reason=repeats.reason)

        strictly = "bit for bit" if repeats.strict else "the same words"
        session.check(TWICE, f"{name}, twice", f"{strictly}, and finite log-probabilities", again)


def together(session: Session) -> None:
    """Several at the same time: what each says alone."""
    repeats = session.suite.together
    asked = [session.suite.question(name) for name in repeats.ask]

    def ask() -> Seen:
        missing = [one.name for one in asked if one.name not in session.replies]
        if missing:
            return Seen(wrong=f"there was no answer alone to {', '.join(missing)}")
        found = at_once(partial(_anywhere, session), asked)
        wrong = []
        for one, now in zip(asked, found, strict=True):
            before = session.replies[one.name]
            told = differs(before, now) if repeats.strict else parted(session, one, before, now)
            wrong += [f"{one.name}: {told}"] if told else []
        return Seen(wrong="; ".join(wrong), well="as alone", reason=repeats.reason)

    what = "all of it" if repeats.strict else "right, in the same words"
    session.check(TOGETHER, f"{len(asked)} requests", f"{what} as alone", ask)


def _anywhere(session: Session, one: Question) -> Reply:
    return session.talk.chat(one.name, one.user, system=one.system, count=one.count, slot=-1)


def differs(before: Reply, now: Reply) -> str:
    """Where two replies are not the same; empty where they are."""
    if before == now:
        return ""
    for what in ("content", "reasoning", "finish", "prompt_tokens", "tokens", "ids"):
        old, new = getattr(before, what), getattr(now, what)
        if old != new:
            return f"{what} is {shown(str(new))}, was {shown(str(old))}"
    return "log-probabilities are others" if before.positions and now.positions else ""


def parted(session: Session, one: Question, before: Reply, now: Reply) -> str:
    """Whether two replies are not both right or say it in other words."""
    wrong = judged(now, one.expect, session.suite.garble)
    if wrong:
        return wrong.text
    if plain(before.content) != plain(now.content):
        return f"content is {shown(now.content)}, was {shown(before.content)}"
    return ""


def speed(session: Session, model: Model) -> None:
    """No answer came faster than the memory can give the weights for it, nor far too slowly."""
    bounds = session.suite.speed
    most = limit(model, bounds)
    least = bounds.least.limit if bounds.least else 0.0

    def measured() -> Seen:
        found = fastest(session.talk.spoken)
        if found is None:
            return Seen(wrong=f"no answer of {LEAST_TOKENS} tokens has times")
        passes, tokens = found
        told = f"{tokens:.2f} tokens a second, {passes:.2f} passes"
        wrong, reason = "", bounds.bandwidth.reason
        if passes > most:
            wrong = f"{told}: faster than {bounds.bandwidth.limit:g} bytes a second allow"
        elif bounds.least and tokens < least:
            wrong, reason = f"{told}: less than {least:g}", bounds.least.reason
        figures = {"tokens a second": tokens, "passes a second": passes, "limit": most}
        return Seen(wrong=wrong, well=told, reason=reason, figures=figures)

    expected = f"{least:g} tokens to {most:,.2f} passes a second, of {active(model).how}"
    session.check(SPEED, "fastest answer", expected, measured)
