"""Several answers to one request: each copy of the slot drafts from the prompt that it has."""

import sys
from typing import Final

import random_models

from sparkbuild.canary.suite import PICTURE
from sparkbuild.patch_bench import Bench, Drafts, Subject, proof

SLOTS: Final = 4
COPIES: Final = 3


def main(bench: Bench) -> None:
    """See the module."""
    text = bench.canary("llama")
    draft = random_models.eagle3(bench.folder / "random" / "eagle3.gguf", text.model)
    several(bench, text, Drafts(kind="draft-eagle3", model=draft))
    for canary in ("glm47-flash", "qwen35"):
        several(bench, bench.canary(canary), Drafts())


def several(bench: Bench, subject: Subject, drafts: Drafts) -> None:
    """Texts, and pictures where the model sees; all copies say what one answer says."""
    what = f"{subject.name}, {drafts.kind}"
    entries = [one for one in subject.suite.answers if one.messages and not one.tools]
    texts = [one for one in entries if PICTURE not in str(one.messages)][:12:2]
    seen = [one for one in entries if PICTURE in str(one.messages)][:12:4]
    with bench.serving(subject, drafts=drafts, slots=SLOTS, context=512, log=what) as talk:
        for one in texts:  # every slot then has a prompt of its own
            talk.chat(one.messages)
        said = [(one, talk.chat(one.messages, n=COPIES)) for one in (*texts, *seen)]
    wrong = [
        f"{one.name}: {answer.status} {answer.error or answer.texts}"
        for one, answer in said
        if len(answer.texts) != COPIES or len(set(answer.texts)) != 1
    ]
    drafted, accepted = (sum(answer.counts[at] for _, answer in said) for at in (0, 1))
    found = f"{len(said) - len(wrong)} of {len(said)}, {accepted} of {drafted} drafts accepted"
    bench.check(what, well=not wrong, found="; ".join([found, *wrong[:2]]))
    bench.quiet(what, talk)


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
