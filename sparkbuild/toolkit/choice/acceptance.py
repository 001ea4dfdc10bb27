"""``--accept ID``: what the user takes upon himself, and what is only told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkbuild.errors import UsageError
from sparkbuild.manifest import Toolchain
from sparkbuild.toolkit.advisories import Advisory
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.choice.candidates import Candidate


def warnings(taken: Candidate, accepted: tuple[str, ...]) -> Iterator[str]:
    """A sentence for each advisory that warns of the toolkit and was not accepted."""
    versions = {part.name: part.version for part in taken.found.identity.parts}
    for advisory in taken.advisories:
        if advisory.action == "warn" and advisory.id not in accepted:
            yield (
                f"{advisory.id}: {advisory.part} {versions[advisory.part]}: {advisory.effect} "
                f"({'; '.join(advisory.evidence)})"
            )


def refuse_unknown(accepted: tuple[str, ...], book: Book) -> None:
    """Raises UsageError with the known ids where one is in no list."""
    known = [advisory.id for advisory in book.known_bad.advisory]
    wrong = [name for name in accepted if name not in known]
    if wrong:
        raise UsageError(
            f"--accept {wrong[0]}: there is no such advisory",
            problems=[f"{name!r} is in no list" for name in wrong]
            + [f"known: {', '.join(known) or 'none'}"],
            next_step="leave it out, or copy the id from the refusal",
        )


def refuse_pointless(
    accepted: tuple[str, ...],
    matched: Mapping[str, Advisory],
    toolchain: Toolchain,
    targets: tuple[str, ...],
) -> None:
    """An acceptance that excuses nothing is a mistake: of the id, the release or the target.

    ``matched`` are the advisories that apply, by id. Raises UsageError.
    """
    wrong = [name for name in accepted if name not in matched]
    if wrong:
        what = " ".join([toolchain.name, *targets])
        raise UsageError(
            f"--accept {wrong[0]}: says nothing of {what}",
            problems=[f"what is known of {what}: {', '.join(matched) or 'nothing'}"],
            next_step="leave --accept out: nothing that it names applies here",
        )
