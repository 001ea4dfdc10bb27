"""The NextN block in a file of its own, beside a trunk without it: the same tokens and drafts.

The two files are what convert_hf_to_gguf.py writes with --no-mtp and with --mtp.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import gguf
from rewritten import rewritten

from sparkbuild.patch_bench import Bench, Drafts, Subject, proof
from sparkbuild.patch_talk import Said

PROMPTS: Final = 12
SHARED: Final = ("token_embd.weight", "output_norm.weight", "output.weight")
"""What both files hold."""
BLOCK: Final = re.compile(r"blk\.(\d+)\.")


def main(bench: Bench) -> None:
    """See the module."""
    subject = bench.canary("glm5-next")
    trunk, block = halves(subject.model, bench.folder / "split")
    whole = asked(bench, subject, Drafts(), "whole")
    parts = asked(bench, replace(subject, model=trunk), Drafts(model=block), "halves")
    drafted, accepted = (sum(one.counts[at] for one in whole) for at in (0, 1))
    found = f"{len(whole)} answers, {accepted} of {drafted} drafts accepted"
    well = all(one.tokens for one in whole) and accepted > 0
    bench.check("the whole file", well=well, found=found)
    pairs = zip(whole, parts, strict=True)
    same = [one.tokens == part.tokens and one.counts == part.counts for one, part in pairs]
    found = f"{sum(same)} of {len(same)} with the same tokens and counts"
    bench.check("the two halves", well=all(same), found=found)
    said = bench.refused(replace(subject, model=block), log="block")
    bench.check("the block alone is refused in words", well="NextN block alone" in said, found=said)
    said = bench.refused(replace(subject, model=trunk), log="trunk", drafts=Drafts())
    bench.check("a trunk has no drafts", well=bool(said), found=said)


def halves(whole: Path, folder: Path) -> tuple[Path, Path]:
    """The trunk without the block, and the block with what it shares."""
    fields = gguf.GGUFReader(whole).fields
    last = int(fields["glm5-next.block_count"].contents()) - 1

    def shorter(key: str, value: Any) -> tuple[str, Any] | None:
        if key.endswith(".nextn_predict_layers"):
            return None
        if key.endswith(".block_count"):
            return key, last
        short = isinstance(value, list) and len(value) == last + 1
        return key, value[:-1] if short else value

    def of_block(name: str) -> bool:
        found = BLOCK.match(name)
        return found is not None and int(found[1]) == last

    def of_trunk(name: str) -> bool:
        return not of_block(name)

    def of_file(name: str) -> bool:
        return of_block(name) or name in SHARED

    return (
        rewritten(whole, folder / "trunk.gguf", change=shorter, keep=of_trunk),
        rewritten(whole, folder / "block.gguf", keep=of_file),
    )


def asked(bench: Bench, subject: Subject, drafts: Drafts, log: str) -> list[Said]:
    """What the prompts' answers are."""
    entries = [one for one in subject.suite.answers if one.group == "answers" and one.messages]
    with bench.serving(subject, drafts=drafts, context=1024, log=log) as talk:
        said = [
            talk.complete(talk.prompt(one.messages), count=32, cache_prompt=False)
            for one in entries[:PROMPTS]
        ]
    bench.quiet(log, talk)
    return said


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
