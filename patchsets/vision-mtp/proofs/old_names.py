"""Files of glm5-next from before the merge: the same tokens in both spellings.

The canary is respelled: architecture, keys and projector, the list of heads one entry short, and
without keys that older files leave out.
"""

import sys
from dataclasses import replace
from typing import Any, Final

from rewritten import Change, rewritten

from sparkbuild.canary.suite import PICTURE
from sparkbuild.patch_bench import Bench, Subject, proof
from sparkbuild.patch_talk import Said

OLD, NEW = "glm5next", "glm5-next"
KPOOL: Final = "attention.indexer.kpool"
ENDS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")
TEXTS, PICTURES = 12, 6


def main(bench: Bench) -> None:
    """See the module."""
    subject = bench.canary(NEW)
    assert subject.vision is not None  # noqa: S101 - this canary sees
    folder = bench.folder / "names"
    eye = rewritten(subject.vision, folder / "mmproj.gguf", change=projector)
    wanted = answers(bench, subject, "present")
    told = f"{sum(bool(one.texts) for one in wanted)} of {len(wanted)}"
    bench.check("answers in the present spelling", well=all(w.texts for w in wanted), found=told)
    ways = {
        "old names": respelled(),
        "one entry short": respelled(short=True),
        "without a pool's size and two ends": respelled(short=True, without=(KPOOL, *ENDS[1:])),
        "without any end": respelled(without=ENDS),
    }
    for name, change in ways.items():
        model = rewritten(subject.model, folder / "model.gguf", architecture=OLD, change=change)
        found = answers(bench, replace(subject, model=model, vision=eye), name)
        same = [a.texts == b.texts and a.texts != () for a, b in zip(wanted, found, strict=True)]
        bench.check(name, well=all(same), found=f"{sum(same)} of {len(same)} as in the present")
    nowhere = rewritten(
        subject.model,
        folder / "no-pool.gguf",
        change=lambda key, value: None if key.endswith(KPOOL) else (key, value),
        keep=lambda tensor: "compressor_ape" not in tensor,
    )
    said = bench.refused(replace(subject, model=nowhere), log="no-pool")
    well = f"--override-kv {NEW}.{KPOOL}=int:" in said
    bench.check("a size that stands nowhere is refused with the remedy", well=well, found=said)


def respelled(*, short: bool = False, without: tuple[str, ...] = ()) -> Change:
    """What becomes of the metadata."""

    def change(key: str, value: Any) -> tuple[str, Any] | None:
        if key.endswith(without or ("\0",)):
            return None
        if short and key.endswith("head_count_kv"):
            value = value[:-1]
        return key.replace(f"{NEW}.", f"{OLD}."), value

    return change


def projector(key: str, value: Any) -> tuple[str, Any]:
    """The tower's metadata with the old name of its projector."""
    return key, OLD if key == "clip.projector_type" else value


def answers(bench: Bench, subject: Subject, name: str) -> list[Said]:
    """Texts and pictures."""
    answers = subject.suite.answers
    entries = [one for one in answers if one.messages and not one.forms and not one.tools]
    texts = [one for one in entries if PICTURE not in str(one.messages)][:TEXTS]
    seen = [one for one in entries if PICTURE in str(one.messages)][:PICTURES]
    with bench.serving(subject, context=1024, log=name) as talk:
        said = [talk.chat(one.messages) for one in (*texts, *seen)]
    bench.quiet(name, talk)
    return said


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
