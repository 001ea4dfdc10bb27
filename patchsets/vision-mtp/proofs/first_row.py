"""How much is drafted and accepted does not depend on what a slot was asked before."""

import sys
from typing import Final

from sparkbuild.canary.suite import PICTURE, Answer
from sparkbuild.patch_bench import Bench, Drafts, proof
from sparkbuild.patch_talk import Said, Talk

CANARIES: Final = ("glm47-flash", "qwen35")
DRAFTS: Final = Drafts(most=4)
"""The untrained depth too: there a draft hangs on details."""
QUESTIONS: Final = 40


def main(bench: Bench) -> None:
    """See the module."""
    for canary in CANARIES:
        subject = bench.canary(canary)
        entries = [one for one in subject.suite.answers if one.messages and not one.tools]
        texts = [one for one in entries if PICTURE not in str(one.messages)][:QUESTIONS]
        seen = [one for one in entries if PICTURE in str(one.messages)]
        with bench.serving(subject, drafts=DRAFTS, context=512, log=canary) as talk:

            def ask(one: Answer, talk: Talk = talk) -> Said:
                return talk.chat(one.messages, cache_prompt=False)

            first = {one.name: ask(one) for one in texts}
            again: dict[str, dict[str, Said]] = {"in reverse": {}, "after others": {}}
            for one in reversed(texts):
                again["in reverse"][one.name] = ask(one)
            for number, one in enumerate(texts):
                ask(seen[number % len(seen)])
                talk.break_off(texts[number - 1].messages, after=number % 3)
                again["after others"][one.name] = ask(one)
        bench.quiet(canary, talk)
        for way, said in again.items():
            compared(bench, f"{canary}, {way}", first, said)
        if not bench.well:
            return


def compared(bench: Bench, what: str, first: dict[str, Said], said: dict[str, Said]) -> None:
    """Every answer with its counts against those of the first time."""
    other = [
        f"{name}: {first[name].counts}, now {one.counts}"
        for name, one in said.items()
        if (one.texts, one.counts) != (first[name].texts, first[name].counts) or not one.texts
    ]
    drafted, accepted = (sum(one.counts[at] for one in said.values()) for at in (0, 1))
    found = f"{accepted} of {drafted}, {len(said) - len(other)} of {len(said)} as before"
    bench.check(what, well=not other and accepted > 0, found="; ".join([found, *other[:3]]))


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
