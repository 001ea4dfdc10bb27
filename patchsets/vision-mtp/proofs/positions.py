"""Drafts with a cache and positions of their own, behind a target whose pictures share positions.

Drafts of one axis behind M-RoPE, with and without a sliding window, and the other way round. Most
have random weights: nothing is accepted of them but by chance, which makes the most of roll-backs.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace

import random_models
from mixed import checked

from sparkbuild.patch_bench import Bench, Drafts, Subject, proof


def main(bench: Bench) -> None:
    """See the module."""
    qwen35, flash = bench.canary("qwen35"), bench.canary("glm47-flash")
    llama = bench.canary("llama")
    checked(bench, qwen35, one_axis(bench, llama, flash), trained=False)
    # deepseek2 gives no states of its layers; to llama, pictures are noise, the same each time
    eyed = replace(flash, name="llama with eyes", model=llama.model)
    checked(bench, eyed, three_axes(bench, llama), trained=False)


def one_axis(bench: Bench, llama: Subject, flash: Subject) -> Iterator[tuple[Drafts, int]]:
    """Small models, and random ones that fill in a block at once, with slots."""
    yield Drafts(kind="draft-simple", model=llama.model), 1
    yield Drafts(kind="draft-simple", model=flash.model), 4
    folder, words = bench.folder / "random", llama.model
    dflash = random_models.dflash
    plain = Drafts(kind="draft-dflash", model=dflash(folder / "dflash.gguf", words))
    yield plain, 1
    yield plain, 4
    yield Drafts(kind="draft-dflash", model=dflash(folder / "window.gguf", words, window=32)), 4
    yield Drafts(kind="draft-dspark", model=dflash(folder / "dspark.gguf", words, markov=True)), 4


def three_axes(bench: Bench, llama: Subject) -> Iterator[tuple[Drafts, int]]:
    """Random drafts with M-RoPE, with slots."""
    folder, words = bench.folder / "random", llama.model
    dflash = random_models.dflash
    yield Drafts(kind="draft-dflash", model=dflash(folder / "mrope.gguf", words, mrope=True)), 4
    window = dflash(folder / "mrope-window.gguf", words, mrope=True, window=32)
    yield Drafts(kind="draft-dflash", model=window), 4


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
