"""How drafts of a canary are asked: healthy and damaged heads, each depth, and the exact counts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild.canary import forms
from sparkbuild.canary.catalogue import Canary
from sparkbuild.canary.drafts import acceptance, compared, damage, judged, unasked
from sparkbuild.canary.drafts_mixed import among_pictures
from sparkbuild.canary.forms import Place
from sparkbuild.canary.gguf.derive import Form
from sparkbuild.canary.gguf.spoil import spoilt
from sparkbuild.canary.model import Acceptance, DraftCheck, Head
from sparkbuild.canary.suite import load_suite
from sparkbuild.canary_desk import SERVED, Desk, files_of, setup_of
from sparkbuild.errors import CanaryError

DRAFTS: Final = "drafts"
_DRAFTED: Final[Form] = "f32"
"""The form that a draft block is damaged in, so both heads are asked in it."""


def asked_drafts(
    desk: Desk, entry: Canary, place: Place, flags: tuple[str, ...], missed: frozenset[str]
) -> tuple[tuple[DraftCheck, ...], str, bool]:
    """Every check, a summary of them, and whether all is well; ``missed`` is not asked.

    Raises CanaryError where no bands are recorded, SmokeError where a server does not come up.
    """
    folder = desk.data / entry.suite
    suite, limits = load_suite(folder)
    skip = missed | unasked(suite, limits, abilities=desk.abilities)
    if not limits.drafts:
        raise CanaryError(
            f"no acceptance of drafts is recorded for {entry.name}",
            evidence=[folder],
            next_step="record bands in its limits.toml, or leave drafts out with --no-drafts",
        )
    files = files_of(desk, entry, _DRAFTED, place)
    with tempfile.TemporaryDirectory(dir=place.root, prefix="damaged-") as name:
        copy = Path(shutil.copyfile(files.model.path, Path(name) / files.model.path.name))
        spoil = damage(copy)

        def ask(head: Head, depth: int, model: Path) -> Acceptance:
            def told(answer: str, done: int, of: int) -> None:
                desk.live.progress(done, of, f"depth {depth}, {head} head: {answer}")

            log = place.log(DRAFTS, head, str(depth))
            cache = desk.cache or SERVED
            setup = setup_of(desk, place, files, _DRAFTED, flags, log, cache=cache, model=model)
            return acceptance(folder, setup, depth=depth, skip=skip, on_answer=told)

        def measure(head: Head, depth: int) -> Acceptance:
            if head == "healthy":
                return ask(head, depth, files.model.path)
            with spoilt(copy, spoil):
                return ask(head, depth, copy)

        checks = tuple(compared(limits.drafts, measure))
    supported = not any(check.state == "unsupported" for check in checks)
    if supported and desk.exact:
        checks += _exact(desk, entry, place, flags)
    if supported and limits.drafts_pictures(desk.abilities):
        checks += _mixed(desk, entry, place, flags, missed)
    if limits.drafts_need in desk.abilities:
        checks = tuple(map(_promised, checks))
    states = [check.state for check in checks]
    summary = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return checks, summary, all(check.passed for check in checks)


def _promised(check: DraftCheck) -> DraftCheck:
    """The same of a build that promises drafts: that it has no graph for them is a failure."""
    failed = check.state == "unsupported"
    return msgspec.structs.replace(check, state="failed") if failed else check


def _mixed(
    desk: Desk, entry: Canary, place: Place, flags: tuple[str, ...], missed: frozenset[str]
) -> tuple[DraftCheck, ...]:
    """Texts and pictures in turn at the deepest chain, where the canary sees."""
    folder = desk.data / entry.suite
    depth = max(band.depth for band in load_suite(folder)[1].drafts)

    def told(answer: str, done: int, of: int) -> None:
        desk.live.progress(done, of, f"drafts among pictures: {answer}")

    files = files_of(desk, entry, _DRAFTED, place)
    cache, log = desk.cache or SERVED, place.log(DRAFTS, "pictures")
    setup = setup_of(desk, place, files, _DRAFTED, flags, log, cache=cache)
    found = among_pictures(folder, setup, depth=depth, skip=missed, on_answer=told)
    return (found,) if found else ()


def _exact(
    desk: Desk, entry: Canary, place: Place, flags: tuple[str, ...]
) -> tuple[DraftCheck, ...]:
    """Of the form that rounds nothing, every answer's drafts against those recorded, if any are."""
    folder = desk.data / entry.suite
    suite, limits = load_suite(folder)
    band = next(
        (b for b in limits.drafts if suite.drafted and b.depth == suite.drafted.depth), None
    )
    if suite.drafted is None or band is None:
        return ()

    def told(answer: str, done: int, of: int) -> None:
        desk.live.progress(done, of, f"exact drafts: {answer}")

    files = files_of(desk, entry, forms.EXACT, place)
    log = place.log(DRAFTS, "exact")
    setup = setup_of(desk, place, files, forms.EXACT, flags, log, cache=desk.cache_of(forms.EXACT))
    skip = unasked(suite, limits, abilities=desk.abilities)
    found = acceptance(folder, setup, depth=band.depth, skip=skip, on_answer=told)
    return (judged(found, band, "healthy", recorded=suite.drafted.counts),)
