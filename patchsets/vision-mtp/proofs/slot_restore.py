"""A slot that is saved and restored drafts on; without its draft's file it starts over.

An answer is broken off and its slot saved. The slot is asked something shorter, so that the draft's
memory ends before the restored prompt does; then it is restored, and the answer goes on.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sparkbuild.patch_bench import Bench, Drafts, Subject, proof
from sparkbuild.patch_talk import Said

DRAFTS: Final = Drafts(most=2)
SAVED: Final = "conversation"
BEGUN: Final = 6
"""Tokens of the answer before it is broken off."""
SHORT: Final = [{"role": "user", "content": "Hi"}]

Spoil = Callable[[Path], None]


def main(bench: Bench) -> None:
    """See the module."""
    for canary in ("glm47-flash", "qwen35"):
        restored(bench, bench.canary(canary))


def restored(bench: Bench, subject: Subject) -> None:
    """Every way to find the draft's file again, against the same answer without a detour."""
    wanted = detour(bench, subject, None, "straight on")
    bench.check(f"{subject.name}, straight on", well=wanted.accepted > 0, found=wanted.counts)
    ways: dict[str, Spoil] = {
        "restored": lambda _: None,
        "without the draft's file": lambda file: file.unlink(missing_ok=True),
        "with a draft's file cut off": _cut,
        "with a draft's file that is none": _replaced,
    }
    for name, spoil in ways.items():
        found = detour(bench, subject, spoil, name)
        well = found.status == 200 and found.tokens == wanted.tokens
        if name == "restored":
            well = well and found.counts == wanted.counts
        told = f"{found.status} {found.error}".strip()
        told += f", {len(found.tokens)} tokens of {len(wanted.tokens)}"
        told += f", drafts {found.counts}, straight on {wanted.counts}"
        bench.check(f"{subject.name}, {name}", well=well, found=told)


def detour(bench: Bench, subject: Subject, spoil: Spoil | None, name: str) -> Said:
    """The rest of an answer whose slot was saved, used for something else, and restored."""
    entries = [one for one in subject.suite.answers if one.group == "answers" and one.messages]
    longest = max(entries, key=lambda one: len(one.text) if not one.tools else 0)
    log = f"{subject.name}-{name}"
    with bench.serving(subject, drafts=DRAFTS, context=512, log=log) as talk:
        prompt = talk.prompt(longest.messages)
        begun = talk.complete(prompt, count=BEGUN)
        if spoil is not None:
            talk.slot(0, "save", SAVED)
            talk.chat(SHORT, cache_prompt=False)
            spoil(bench.saved / f"{SAVED}.draft")
            done = talk.slot(0, "restore", SAVED)
            bench.check(f"{subject.name}, {name}, restored", well=done == 200, found=done)
        said = talk.complete([*prompt, *begun.tokens], count=40, cache_prompt=True)
    if spoil is None or name == "restored":
        bench.quiet(log, talk)
    return said


def _replaced(file: Path) -> None:
    file.write_text("no state\n", encoding="utf-8")


def _cut(file: Path) -> None:
    if file.is_file():
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
