"""The trained draft block (NextN, MTP): how much of what it proposes is accepted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from sparkbuild.canary.ask import with_pictures
from sparkbuild.canary.gguf.layout import layout
from sparkbuild.canary.gguf.spoil import Spoil
from sparkbuild.canary.model import Acceptance
from sparkbuild.canary.run import Setup, flags
from sparkbuild.canary.suite import Answer, Suite, load_pictures, load_suite
from sparkbuild.errors import CanaryError, SmokeError
from sparkbuild.llama.client import Api, Timings
from sparkbuild.llama.server import running

_NO_GRAPH: Final = ("NextN graph not implemented", "MTP graph not implemented")
"""What llama.cpp says where an architecture's draft block is loaded but cannot be computed."""
_HEAD: Final = "nextn.eh_proj.weight"
"""Joins the last hidden state with the next token's embedding: without it a draft is blind."""


def acceptance(
    folder: Path, setup: Setup, *, depth: int, groups: Iterable[str] | None = None
) -> Acceptance:
    """Ask the suite's answers (of some groups) with drafts of ``depth`` tokens, one at a time.

    Only the main thread may call this. Raises SmokeError where the server does not come up for
    another reason than that it knows no graph for this architecture's draft block.
    """
    suite, _ = load_suite(folder)
    pictures = load_pictures(folder, suite)
    wanted = [a for a in suite.answers if groups is None or a.group in groups]
    drafting = ("--spec-type", "draft-mtp", "--spec-draft-n-max", str(depth))
    setup = replace(setup, flags=(*setup.flags, *drafting))
    found = Acceptance(depth=depth)
    try:
        with running(
            setup.executable,
            flags(setup, suite),
            model=setup.model,
            scratch=setup.scratch,
            log=setup.log,
            limits=setup.patience,
        ) as server:
            api = Api(server.client)
            for entry in wanted:
                found = _counted(found, *_asked(api, suite, entry, pictures))
    except SmokeError:
        reason = _unsupported(setup.log)
        if reason:
            return Acceptance(depth=depth, unsupported=reason)
        raise
    return found


def damage(model: Path) -> Spoil:
    """The perturbation of a float32 file that blinds its draft block, and nothing else.

    Raises CanaryError where the file has no draft block.
    """
    for name in layout(model).tensors:
        if name.endswith(_HEAD):
            return Spoil(target=name, kind="rolled", detail="")
    raise CanaryError(f"{model.name} has no draft block", evidence=[model])


def _asked(
    api: Api, suite: Suite, entry: Answer, pictures: dict[str, bytes]
) -> tuple[Timings | None, bool]:
    """The server's counts, and whether the text is right."""
    if entry.raw:
        answer = api.complete_mixed([entry.raw], count=entry.count)
        return answer.timings, answer.content == entry.text
    chat = api.converse(
        list(with_pictures(entry.messages, pictures)),
        count=min(entry.count, suite.context),
        tools=entry.tools,
        thinking=entry.thinking,
    )
    return chat.timings, (chat.choices[0].message.content or "") == entry.text


def _counted(found: Acceptance, timings: Timings | None, right: bool) -> Acceptance:
    drafted = (timings.draft_n if timings else None) or 0
    accepted = (timings.draft_n_accepted if timings else None) or 0
    return Acceptance(
        depth=found.depth,
        drafted=found.drafted + drafted,
        accepted=found.accepted + accepted,
        wrong=found.wrong + (not right),
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
