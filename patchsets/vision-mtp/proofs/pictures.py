"""The MTP block drafts after pictures: long mixed runs with one and with four slots.

A block with one position an entry, and one with M-RoPE, at every depth that they were trained for.
"""

import sys
from typing import Final

from mixed import checked

from sparkbuild.patch_bench import Bench, Drafts, proof

ROUNDS: Final = 3
"""So many pictures that their share of accepted tokens is no matter of a few."""
RUNS: Final = {
    "glm47-flash": ((3, 1), (2, 4), (1, 4)),
    "qwen35": ((3, 1), (3, 4)),
}
"""Tokens drafted at a time, and slots."""


def main(bench: Bench) -> None:
    """See the module."""
    for canary, runs in RUNS.items():
        drafts = ((Drafts(most=most), slots) for most, slots in runs)
        checked(bench, bench.canary(canary), drafts, rounds=ROUNDS)


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
