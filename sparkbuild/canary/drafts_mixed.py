"""Drafts among pictures: texts and pictures in turn, a request broken off, several at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from sparkbuild.canary import choice
from sparkbuild.canary.drafts import Counts, drafting, one_answer
from sparkbuild.canary.model import DraftCheck
from sparkbuild.canary.run import Setup, served
from sparkbuild.canary.suite import PICTURE, Answer, Suite, load_pictures, load_suite
from sparkbuild.llama.client import Api, UnexpectedAnswerError
from sparkbuild.llama.log import scan

_PAIRS: Final = 6
"""Of a text and a picture each, one after another; two of them also at the same time."""
_HALF: Final = 0.5
"""Of the share that is accepted of text alone. Of the healthy qwen35 it is 0.86 (26 of 33 after
pictures, 91.6 % of texts)."""
_LONG: Final = 300
"""Tokens of the answer that is broken off."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    name: str
    pictured: bool
    counts: Counts
    right: bool


def among_pictures(
    folder: Path,
    setup: Setup,
    *,
    depth: int,
    skip: Collection[str] = (),
    on_answer: Callable[[str, int, int], None] = lambda *_: None,
) -> DraftCheck | None:
    """Ask texts and pictures in turn with drafts; None where the suite has not both.

    It fails where a text is wrong, the share accepted after pictures is less than half of that of
    texts, nothing was drafted, or the log tells of a fault. ``skip`` names answers that this form
    misses without drafts. Only the main thread may call this. Raises SmokeError where the server
    does not come up.
    """
    suite, _ = load_suite(folder)
    pairs = _pairs(suite, setup.form, skip)
    if not pairs:
        return None
    pictures = load_pictures(folder, suite)
    done: list[_Asked] = []

    def told(found: Iterable[_Asked]) -> None:
        for one in found:
            done.append(one)
            on_answer(one.name, len(done), len(pairs) * 2 + len(together))

    together = [entry for pair in pairs[: setup.slots // 2] for entry in pair]
    with served(drafting(setup, depth), suite) as server:
        api = Api(server.client)

        def ask(entry: Answer) -> _Asked:
            counts, right = _kept(api, suite, entry, pictures)
            return _Asked(name=entry.name, pictured=_sees(entry), counts=counts, right=right)

        for number, (text, picture) in enumerate(pairs):
            told([ask(text)])
            if number % 2:
                _break_off(api, suite)
            told([ask(picture)])
        in_turn = list(done)
        pool = ThreadPoolExecutor(max_workers=max(1, len(together)))
        try:
            told(list(pool.map(ask, together)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return _judged(done, in_turn, depth, setup)


def _judged(
    done: Sequence[_Asked], in_turn: Sequence[_Asked], depth: int, setup: Setup
) -> DraftCheck:
    texts, seen = (
        [one.counts for one in in_turn if one.pictured == pictured] for pictured in (False, True)
    )
    bound = _HALF * _share(texts)
    wrong = sum(not one.right for one in done)
    drafted, accepted = (sum(counts[at] for counts in seen) for at in (0, 1))
    log = scan(setup.log, context=setup.context | {"drafts"})
    well = not wrong and bound > 0 and drafted > 0 and _share(seen) >= bound and log.passed
    return DraftCheck(
        depth=depth,
        head="healthy",
        state="passed" if well else "failed",
        drafted=drafted,
        accepted=accepted,
        wrong=wrong,
        share=round(_share(seen), 4),
        bound=round(bound, 4),
        reason=f"half of what is accepted of texts, {_share(texts):.1%}",
        log=log,
        pictures=True,
    )


def _share(counts: Sequence[Counts]) -> float:
    drafted = sum(one[0] for one in counts)
    return sum(one[1] for one in counts) / drafted if drafted else 0.0


def _pairs(suite: Suite, form: str, skip: Collection[str]) -> list[tuple[Answer, Answer]]:
    entries = [entry for entry in suite.in_form(form).answers if entry.name not in skip]
    texts = [entry for entry in entries if not _sees(entry)]
    seen = [entry for entry in entries if _sees(entry)]
    # From all over the suite: its groups stand one after another.
    spread = [group[:: max(1, len(group) // _PAIRS)] for group in (texts, seen)]
    return list(zip(*spread, strict=False))[:_PAIRS]


def _sees(entry: Answer) -> bool:
    return PICTURE in str(entry.messages)


def _kept(api: Api, suite: Suite, entry: Answer, pictures: dict[str, bytes]) -> tuple[Counts, bool]:
    """An answer's counts and whether it is right; one that does not come is wrong."""
    try:
        return one_answer(api, suite, entry, pictures)
    except (httpx.HTTPError, UnexpectedAnswerError):
        return (0, 0), False


def _break_off(api: Api, suite: Suite) -> None:
    texts = [one for one in choice.references(suite) if choice.is_text(one)]
    prompt = [part for one in texts[-1:] for part in one.prompt if isinstance(part, int)]
    if prompt:
        api.break_off(prompt, count=_LONG, after=1)
