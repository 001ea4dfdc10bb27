"""Drafts of the model's own NextN block: accepted in their band, right, and the same again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Final

from sparkbuild.smoke.served.known import differs
from sparkbuild.smoke.served.session import Seen, Session, at_once, seen
from sparkbuild.smoke.served.suite import Among, Band, Drafts, DraftText, Look
from sparkbuild.smoke.served.talk import Reply
from sparkbuild.smoke.served.vision import Drawings, content, verdict
from sparkbuild.smoke.served.words import Wrong, judged, shown, wanted

DRAFTS: Final = "drafts"
AMONG: Final = "drafts among pictures"
_NO_GRAPH: Final = ("NextN graph not implemented", "MTP graph not implemented")
"""What llama.cpp says where an architecture's draft block is loaded but cannot be computed."""
_LONG: Final = 300
"""Tokens of the answer that is broken off."""
_NOTHING: Final = "nothing was drafted: the server's answers have no draft_n"
Speeds = Mapping[str, float]
"""Tokens a second of each text without drafts."""


def unsupported(log: Path) -> str:
    """The log's line that says that there is no graph for drafts; empty where none does."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    line = next((line for line in lines if any(sign in line for sign in _NO_GRAPH)), "")
    return line.partition(" E ")[2] or line


def undrafted(session: Session, drafts: Drafts) -> Speeds:
    """The texts without drafts: their speeds, to compare with."""
    found: dict[str, float] = {}

    def ask(text: DraftText) -> Seen:
        reply = session.talk.chat(text.name, text.user, count=text.count)
        if reply.times:
            found[text.name] = reply.times.speed
        return seen(judged(reply, text.expect, session.suite.garble), shown(reply.content))

    for text in drafts.texts:
        name = f"{text.name}, without drafts"
        session.check(DRAFTS, name, wanted(text.expect), partial(ask, text))
    return found


def drafted(session: Session, drafts: Drafts, depth: int, before: Speeds) -> None:
    """Every text twice at this depth, then each kind's acceptance and the speed."""
    replies: dict[str, Reply] = {}
    for text in drafts.texts:
        name, what = f"{text.name}, depth {depth}", f"{wanted(text.expect)}; twice the same"
        session.check(DRAFTS, name, what, partial(_text, session, text, replies))
    for band in drafts.bands:
        if band.depth == depth:
            texts = [text.name for text in drafts.texts if text.kind == band.kind]
            counts = [replies[name].counts for name in texts if name in replies]
            expected = f"{band.low:.0%} to {band.high:.0%} of the drafted tokens accepted"
            name = f"{band.kind}, depth {depth}"
            session.check(DRAFTS, name, expected, partial(_banded, counts, band))
    session.check(DRAFTS, f"speed, depth {depth}", "a figure", partial(_faster, replies, before))


def _text(session: Session, text: DraftText, replies: dict[str, Reply]) -> Seen:
    ask = partial(session.talk.chat, text.name, text.user, count=text.count)
    reply = replies[text.name] = ask()
    wrong = judged(reply, text.expect, session.suite.garble)
    if wrong is None:
        told = differs(reply, ask())
        wrong = Wrong(text=f"the second time {told}") if told else None
    drawn, accepted = reply.counts
    return seen(wrong, f"{shown(reply.content)}; {accepted} of {drawn} accepted")


def _banded(counts: Sequence[tuple[int, int]], band: Band) -> Seen:
    drawn, accepted = _sums(counts)
    if not drawn:
        return Seen(wrong=_NOTHING, reason=band.reason)
    share = accepted / drawn
    told = f"{accepted} of {drawn}, {share:.1%}"
    wrong = "" if band.low <= share <= band.high else told
    return Seen(wrong=wrong, well=told, reason=band.reason, figures={"accepted": share})


def _faster(replies: Mapping[str, Reply], before: Speeds) -> Seen:
    speeds = {name: reply.times.speed for name, reply in replies.items() if reply.times}
    ratios = [speeds[name] / before[name] for name in speeds if before.get(name)]
    if not ratios:
        return Seen(well="no text was asked both ways")
    middle = median(ratios)
    pairs = ", ".join(f"{name} {speeds[name]:.1f}" for name in speeds)
    told = f"{middle:.2f} times as fast as without (median of {len(ratios)}); {pairs} tokens/s"
    return Seen(well=told, figures={"speed ratio": middle, **speeds})


@dataclass(frozen=True, kw_only=True)
class _Asked:
    name: str
    pictured: bool
    counts: tuple[int, int]
    wrong: Wrong | None


def among_pictures(session: Session, drafts: Drafts, among: Among, drawings: Drawings) -> None:
    """Picture, text, picture in turn with a request broken off between; then several at once."""
    done: list[_Asked] = []
    texts = {text.name: text for text in drafts.texts}
    looks = {look.name: look for look in session.suite.vision.looks} if session.suite.vision else {}
    turns = _turns([looks[name] for name in among.looks], [texts[name] for name in among.texts])

    def ask(one: Look | DraftText) -> Seen:
        done.append(_asked(session, one, drawings))
        return _told(done[-1])

    for number, one in enumerate(turns):
        expected = "status 200, and right"
        session.check(AMONG, f"{number + 1}: {one.name}", expected, partial(ask, one))
        if number == 0:
            session.check(
                AMONG, "a request broken off", "no error", partial(_hang_up, session, texts)
            )
    in_turn = list(done)

    def together() -> Seen:
        chosen = turns[: session.suite.server.slots]
        found = at_once(partial(_asked, session, drawings=drawings, slot=-1), chosen)
        wrong = [f"{one.name}: {one.wrong.text}" for one in found if one.wrong]
        return Seen(wrong="; ".join(wrong), well=f"{len(found)} right")

    session.check(AMONG, "at the same time", "status 200, and right", together)
    expected = f"at least {among.share.limit:g} of the share that is accepted of text"
    session.check(AMONG, "accepted", expected, partial(_judged, in_turn, among))


def _turns(looks: Sequence[Look], texts: Sequence[DraftText]) -> list[Look | DraftText]:
    """A picture, a text, a picture again, until each was there."""
    found: list[Look | DraftText] = []
    again = cycle(texts)
    for look in looks:
        found += [look, next(again)]
    return [*found, looks[0]]


def _asked(session: Session, one: Look | DraftText, drawings: Drawings, slot: int = 0) -> _Asked:
    if isinstance(one, DraftText):
        reply = session.talk.chat(one.name, one.user, count=one.count, slot=slot)
        wrong = judged(reply, one.expect, session.suite.garble)
        return _Asked(name=one.name, pictured=False, counts=reply.counts, wrong=wrong)
    drawn = drawings[one.name]
    parts = content(session, one, drawn)
    if isinstance(parts, Wrong):
        return _Asked(name=one.name, pictured=True, counts=(0, 0), wrong=parts)
    reply = session.talk.chat(one.name, parts, count=one.count, slot=slot)
    wrong = verdict(session, one, drawn, reply)
    return _Asked(name=one.name, pictured=True, counts=reply.counts, wrong=wrong)


def _told(one: _Asked) -> Seen:
    drawn, accepted = one.counts
    return seen(one.wrong, f"right; {accepted} of {drawn} drafted tokens accepted")


def _hang_up(session: Session, texts: Mapping[str, DraftText]) -> Seen:
    session.talk.break_off(next(iter(texts.values())).user, count=_LONG)
    return Seen(well="hung up after the first piece")


def _judged(done: Iterable[_Asked], among: Among) -> Seen:
    done = list(done)
    drawn, accepted = _sums([one.counts for one in done if one.pictured])
    all_text, of_text = _sums([one.counts for one in done if not one.pictured])
    if not drawn or not all_text:
        return Seen(wrong=_NOTHING, reason=among.share.reason)
    share, text = accepted / drawn, of_text / all_text
    told = f"{accepted} of {drawn}, {share:.1%}, after pictures; {text:.1%} of text"
    well = text > 0 and share >= among.share.limit * text
    figures = {"accepted after pictures": share, "accepted of text": text}
    return Seen(wrong="" if well else told, well=told, reason=among.share.reason, figures=figures)


def _sums(counts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(one[0] for one in counts), sum(one[1] for one in counts)
