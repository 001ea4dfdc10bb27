"""Pictures: colours, texts that cannot be guessed, order and place."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from sparkbuild.files import sha256_bytes
from sparkbuild.llama.client import picture
from sparkbuild.smoke.served.book import Book
from sparkbuild.smoke.served.pictures import Drawn
from sparkbuild.smoke.served.session import Seen, Session, seen
from sparkbuild.smoke.served.suite import Look, Vision
from sparkbuild.smoke.served.talk import Reply
from sparkbuild.smoke.served.words import Wrong, garbled, judged, misread, shown, silent, wanted

PICTURES: Final = "pictures"
EVIDENCE: Final = "another picture"
"""The group of pictures that are not those whose truth is known: nothing is wrong with a model."""
Drawings = Mapping[str, tuple[Drawn, ...]]


def keep(book: Book, vision: Vision, drawings: Drawings) -> None:
    """Every picture as a file, and beside them which text was drawn into which bytes."""
    truths = {}
    for look in vision.looks:
        for number, one in enumerate(drawings[look.name], start=1):
            name = _name(look, number)
            book.keep(name, one.png)
            truths[name] = {"sha256": one.sha256, "truth": one.truth}
    book.keep("pictures/truths.json", json.dumps(truths, indent=2) + "\n")


def looks(session: Session, vision: Vision, drawings: Drawings) -> None:
    """Every look, in the suite's order."""
    for look in vision.looks:
        drawn = drawings[look.name]
        expected = wanted(look.expect) if look.expect else _reading(look, truth_of(look, drawn))
        check = partial(_look, session, look, drawn)
        session.check(f"{PICTURES}: {look.group}", look.name, expected, check)


def _look(session: Session, look: Look, drawn: Sequence[Drawn]) -> Seen:
    parts = content(session, look, drawn)
    if isinstance(parts, Wrong):
        return seen(parts, "")
    reply = session.talk.chat(look.name, parts, count=look.count)
    session.replies.setdefault(look.name, reply)
    digests = ", ".join(one.sha256[:12] for one in drawn)
    wrong = verdict(session, look, drawn, reply)
    return seen(wrong, f"{shown(reply.content)}; picture {digests}")


def content(session: Session, look: Look, drawn: Sequence[Drawn]) -> list[dict[str, Any]] | Wrong:
    """Pictures from disk and the question: what is sent is what the evidence holds.

    Wrong where a file is not the one that its truth was drawn into.
    """
    parts: list[dict[str, Any]] = []
    for number, one in enumerate(drawn, start=1):
        name = _name(look, number)
        data = (session.book.folder / name).read_bytes()
        found = sha256_bytes(data)
        if found != one.sha256:
            text = f"{name} has sha256 {found}, its truth was drawn into {one.sha256}"
            return Wrong(group=EVIDENCE, text=text)
        parts.append(picture(data))
    return [*parts, {"type": "text", "text": look.ask}]


def verdict(session: Session, look: Look, drawn: Sequence[Drawn], reply: Reply) -> Wrong | None:
    """What is wrong with what was said of pictures."""
    if look.expect:
        return judged(reply, look.expect, session.suite.garble)
    wrong = silent(reply) or garbled(reply, session.suite.garble)
    if wrong:
        return wrong
    truth = truth_of(look, drawn)
    errors = misread(reply.content, truth)
    if errors <= allowed(look, truth):
        return None
    text = f"{errors} of {len(truth)} characters wrong: {shown(reply.content)}, is {truth!r}"
    return Wrong(text=text)


def truth_of(look: Look, drawn: Sequence[Drawn]) -> str:
    """What has to be read."""
    return " ".join(drawn[index].truth for index in look.reads)


def allowed(look: Look, truth: str) -> int:
    """Characters that may be wrong."""
    return int(look.errors.limit * len(truth)) if look.errors else 0


def _reading(look: Look, truth: str) -> str:
    most = allowed(look, truth)
    return f"{truth!r}" + (f" with at most {most} characters wrong" if most else "")


def _name(look: Look, number: int) -> str:
    plainly = re.sub(r"[^a-z0-9]+", "-", look.name.casefold()).strip("-")
    return f"pictures/{plainly}-{number}.png"
