"""The trained draft block (NextN, MTP): how much of what it proposes is accepted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx
import msgspec

from sparkbuild.canary.ask import with_pictures
from sparkbuild.canary.gguf.layout import Layout, layout
from sparkbuild.canary.gguf.spoil import Spoil
from sparkbuild.canary.model import Acceptance, DraftCheck, Head
from sparkbuild.canary.run import Setup, served
from sparkbuild.canary.suite import (
    PICTURE,
    Answer,
    Band,
    Limits,
    Suite,
    load_pictures,
    load_suite,
)
from sparkbuild.errors import CanaryError, SmokeError
from sparkbuild.llama.answers import Timings
from sparkbuild.llama.client import Api, UnexpectedAnswerError
from sparkbuild.llama.log import scan
from sparkbuild.manifest import Ability

Counts = tuple[int, int]
"""Tokens drafted, and of these accepted."""
_NO_GRAPH: Final = ("NextN graph not implemented", "MTP graph not implemented")
"""What llama.cpp says where an architecture's draft block is loaded but cannot be computed."""
_HEAD: Final = "nextn.eh_proj.weight"
"""Joins the last hidden state with the next token's embedding: without it a draft is blind."""
_ONE_IN: Final = 4
"""Six passes over all answers, one after another, would take longer than all else together."""


def acceptance(
    folder: Path,
    setup: Setup,
    *,
    depth: int,
    skip: Collection[str] = (),
    on_answer: Callable[[str, int, int], None] = lambda *_: None,
) -> Acceptance:
    """Ask the suite's answers with drafts of ``depth`` tokens, one at a time.

    ``skip`` names answers that this form misses without drafts too: drafting cannot change them.
    An answer that is refused is wrong; where none comes at all nothing more is asked.
    ``on_answer`` is told of each that came, with how many came of how many. Only the main thread
    may call this. Raises SmokeError where the server does not come up for another reason than that
    it knows no graph for this architecture's draft block.
    """
    suite, _ = load_suite(folder)
    pictures = load_pictures(folder, suite)
    wanted = [answer for answer in suite.in_form(setup.form).answers if answer.name not in skip]
    setup = drafting(setup, depth)
    found = Acceptance(depth=depth)
    try:
        with served(setup, suite) as server:
            api = Api(server.client)
            for done, entry in enumerate(wanted, start=1):
                try:
                    found = _counted(found, entry.name, *one_answer(api, suite, entry, pictures))
                except UnexpectedAnswerError:
                    found = _counted(found, entry.name, (0, 0), right=False)
                except httpx.HTTPError:
                    found = _counted(found, entry.name, (0, 0), right=False)
                    break  # it has ended, or does not answer in time
                on_answer(entry.name, done, len(wanted))
    except SmokeError as error:
        reason = _unsupported(setup.log)
        if reason and not error.short_of_memory:
            return Acceptance(depth=depth, unsupported=reason)
        raise
    log = scan(setup.log, context=setup.context | {"drafts"})
    return msgspec.structs.replace(found, log=log)


def drafting(setup: Setup, depth: int) -> Setup:
    """The same with drafts of up to ``depth`` tokens at a time: a request cannot change it."""
    more = ("--spec-type", "draft-mtp", "--spec-draft-n-max", str(depth))
    return replace(setup, flags=(*setup.flags, *more))


def unasked(
    suite: Suite, limits: Limits, *, abilities: Collection[Ability] = (), one_in: int = _ONE_IN
) -> frozenset[str]:
    """Answers that are not asked with drafts: all but one of so many, and those that cannot be."""
    pictures = limits.drafts_pictures(abilities)
    return frozenset(
        entry.name
        for number, entry in enumerate(suite.answers)
        if number % one_in or (not pictures and PICTURE in str(entry.messages))
    )


def draft_block(found: Layout) -> str:
    """How names of the draft block's tensors begin, ``blk.4.``; empty where there is none."""
    names = (name for name in found.tensors if name.endswith(_HEAD))
    return next(names, "").removesuffix(_HEAD)


def damage(model: Path) -> Spoil:
    """The perturbation of a float32 file that blinds its draft block, and nothing else.

    Raises CanaryError where the file has no draft block.
    """
    block = draft_block(layout(model))
    if not block:
        raise CanaryError(f"{model.name} has no draft block", evidence=[model])
    return Spoil(target=f"{block}{_HEAD}", kind="rolled", detail="")


def compared(
    bands: Iterable[Band], measure: Callable[[Head, int], Acceptance]
) -> Iterator[DraftCheck]:
    """Measure each band's depth with the healthy head, then with the damaged one, and judge.

    ``measure`` is asked no more once it answers that drafts are unsupported: that depends on
    neither head nor depth.
    """
    bands = list(bands)
    heads: tuple[Head, ...] = ("healthy", "damaged")
    unsupported = ""
    for head in heads:
        for band in bands:
            found = Acceptance(depth=band.depth, unsupported=unsupported)
            if not unsupported:
                found = measure(head, band.depth)
                unsupported = found.unsupported
            yield judged(found, band, head)


def judged(
    found: Acceptance,
    band: Band,
    head: Head,
    *,
    recorded: Mapping[str, tuple[int, int]] | None = None,
) -> DraftCheck:
    """An acceptance against its band, and each answer's counts against the ``recorded``, if any.

    One fails where nothing was drafted, a word changed, or the log tells of a fault.
    """
    healthy = head == "healthy"
    others = others_than(recorded or {}, found)
    enough = found.share >= band.healthy if healthy else found.share <= band.damaged
    quiet = found.log is None or found.log.passed
    well = found.drafted > 0 and not found.wrong and enough and quiet and not others
    return DraftCheck(
        depth=found.depth,
        head=head,
        state="unsupported" if found.unsupported else "passed" if well else "failed",
        drafted=found.drafted,
        accepted=found.accepted,
        wrong=found.wrong,
        share=round(found.share, 4),
        bound=band.healthy if healthy else band.damaged,
        reason=found.unsupported or band.reason,
        log=found.log,
        exact=recorded is not None,
        others=others,
    )


def others_than(recorded: Mapping[str, tuple[int, int]], found: Acceptance) -> tuple[str, ...]:
    """Answers that were asked and recorded, and whose counts are others now."""
    both = ((name, recorded.get(name, counts), counts) for name, counts in found.counts.items())
    return tuple(name for name, wanted, counts in both if wanted != counts)


def one_answer(
    api: Api, suite: Suite, entry: Answer, pictures: dict[str, bytes]
) -> tuple[Counts, bool]:
    """The server's counts of drafted and accepted tokens, and whether the text is right.

    Raises httpx.HTTPError and UnexpectedAnswerError as the server's answers make them.
    """
    if entry.raw:
        answer = api.complete_mixed([entry.raw], count=entry.count)
        return _told(answer.timings), answer.content == entry.text
    chat = api.converse(
        list(with_pictures(entry.messages, pictures)),
        count=min(entry.count, suite.context),
        tools=entry.tools,
        thinking=entry.thinking,
    )
    return _told(chat.timings), (chat.choices[0].message.content or "") == entry.text


def _told(timings: Timings | None) -> Counts:
    """Counts that are absent mean that nothing was drafted."""
    return (timings.draft_n or 0, timings.draft_n_accepted or 0) if timings else (0, 0)


def _counted(found: Acceptance, name: str, counts: Counts, right: bool) -> Acceptance:
    drafted, accepted = counts
    return Acceptance(
        depth=found.depth,
        drafted=found.drafted + drafted,
        accepted=found.accepted + accepted,
        wrong=found.wrong + (not right),
        counts={**found.counts, name: (drafted, accepted)},
    )


def _unsupported(log: Path) -> str:
    """The log's line that says that there is no graph; empty where none does."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    told = (line for line in lines if any(sign in line for sign in _NO_GRAPH))
    line = next(told, "")
    return line.partition(" E ")[2] or line
