"""The MTP graphs that looked up tokens whatever they were given take token embeddings.

Six architectures with a draft block of random weights; and a server of one of them, with three
heads in a chain, that is asked texts and pictures in turn.
"""

import sys
from dataclasses import replace
from typing import Final

import random_models
from mixed import checked
from told import compared

from sparkbuild.patch_bench import Bench, Drafts, proof

ARCHITECTURES: Final = ("bailingmoe3", "deepseek4", "hy_v3", "mimo2", "qwen4exp", "step35")


def main(bench: Bench) -> None:
    """See the module."""
    compared(bench, ARCHITECTURES, trained=False)
    eyes = bench.canary("glm47-flash")
    path = bench.folder / "random" / "step35.gguf"
    subject = replace(eyes, name="step35", model=random_models.step35(path, eyes.model))
    checked(bench, subject, ((Drafts(), 1), (Drafts(most=2), 4)), trained=False)


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
