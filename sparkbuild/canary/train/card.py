"""The model card: what a canary was made of, and what is known of it; for people and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from sparkbuild.canary.audit.summary import Summary
from sparkbuild.errors import CanaryError
from sparkbuild.files import files_below, sha256_file, write_atomic

CARD: Final = "card.json"
PAGE: Final = "card.md"
CHECKPOINT: Final = ("text", "vision")
"""Folders below a card that are the canary."""


_ABOUT: Final = """\
A tiny model with known answers, for proving llama.cpp builds right. It knows nothing else. Trained
from random weights on data that the trainer makes: no text, picture or weight of anybody else is in
it."""


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of batch: how often it came, and the shares of the tasks in it at the end."""

    room: str
    share: float
    rows: int
    tokens: int
    tasks: dict[str, float]


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that were right throughout, each token predicted from the right ones before it."""

    right: int
    of: int


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Perturbations that were made, that alter what the canary computes, of these those noticed."""

    made: int
    counted: int
    noticed: int
    unnoticed: tuple[str, ...]
    """Targets and kinds of those that no check noticed, with the reasons."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """``card.json``; ``seconds`` of warm-up and training on ``device``, interruptions left out."""

    schema: Literal[1] = 1
    canary: str
    architecture: str
    licence: Literal["MIT"] = "MIT"
    key: str
    """Digest of recipe, seed, steps, tokenizer and the trainer's code."""
    seed: int
    steps: int
    warm_up_steps: int
    rate: float
    device: str
    threads: int
    torch: str
    seconds: float
    parameters: int
    vision_parameters: int
    effort: str
    """Whether this effort is known to give a canary that passes."""
    data: tuple[Lesson, ...]
    losses: dict[str, float]
    """Of the last batch of each kind."""
    held_out: dict[str, Rate]
    files: dict[str, str]
    """SHA-256 by path below the card."""
    audit: Audit | None = None


def load_card(folder: Path) -> Card:
    """The card in a folder. Raises CanaryError where there is none that can be read."""
    try:
        return msgspec.json.decode((folder / CARD).read_bytes(), type=Card)
    except (OSError, msgspec.DecodeError) as error:
        raise CanaryError(
            "there is no model card that can be read",
            problems=[str(error)],
            evidence=[folder / CARD],
            next_step="train the canary: sparkbuild canary train NAME --out DIR",
        ) from error


def save_card(folder: Path, card: Card) -> None:
    """Write ``card.md`` and ``card.json``; the second says that all is done."""
    write_atomic(folder / PAGE, page(card))
    write_atomic(folder / CARD, msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of the checkpoint below ``folder``."""
    found = [
        f for part in CHECKPOINT if (folder / part).is_dir() for f in files_below(folder / part)
    ]
    return {file.relative_to(folder).as_posix(): sha256_file(file) for file in sorted(found)}


def with_audit(folder: Path, summary: Summary) -> Card:
    """Fill in what an audit of the canary in ``folder`` found. Raises CanaryError."""
    total = summary.total
    card = msgspec.structs.replace(
        load_card(folder),
        audit=Audit(
            made=total.made,
            counted=total.counted,
            noticed=total.noticed,
            unnoticed=tuple(
                f"{one.probe.target} {one.probe.kind}{f': {one.reason}' if one.reason else ''}"
                for one in summary.unnoticed
            ),
        ),
    )
    save_card(folder, card)
    return card


def page(card: Card) -> str:
    """The card in Markdown."""
    return (
        "\n\n".join(
            [
                f"# {card.canary}",
                _ABOUT,
                _table(("", ""), _facts(card)),
                "## Data",
                _table(
                    ("batches", "share", "rows", "tokens", "tasks"),
                    [
                        (x.room, f"{x.share:.0%}", str(x.rows), str(x.tokens), _shares(x.tasks))
                        for x in card.data
                    ],
                ),
                "## Held-out items",
                "Never trained on; whole answers that are right, teacher-forced.",
                _table(
                    ("task", "right", "of"),
                    [(n, str(r.right), str(r.of)) for n, r in sorted(card.held_out.items())],
                ),
                "## Losses at the end",
                _table(("part", "loss"), [(n, f"{v:.4f}") for n, v in sorted(card.losses.items())]),
                "## Audit",
                _audit(card.audit),
                "## Files",
                _table(("file", "SHA-256"), sorted(card.files.items())),
                "",
            ]
        ).rstrip("\n")
        + "\n"
    )


def _facts(card: Card) -> list[tuple[str, str]]:
    return [
        ("architecture", card.architecture),
        ("parameters", f"{card.parameters:,}, vision {card.vision_parameters:,}"),
        ("licence", card.licence),
        ("seed", str(card.seed)),
        ("steps", f"{card.steps}, before them {card.warm_up_steps} of the vision tower alone"),
        ("peak rate", f"{card.rate:g}"),
        ("trained on", f"{card.device}, PyTorch {card.torch}, {card.threads} threads"),
        ("seconds", f"{card.seconds:.0f}"),
        ("effort", card.effort),
        ("key of the run", card.key),
    ]


def _shares(tasks: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in tasks.items())


def _audit(audit: Audit | None) -> str:
    if audit is None:
        return "Not done yet."
    text = (
        f"{audit.made} perturbations, {audit.counted} alter what it computes, "
        f"{audit.noticed} of them were noticed."
    )
    return "\n".join([text, *(f"- not noticed: {name}" for name in audit.unnoticed)])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
