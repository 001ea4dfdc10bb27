"""An eagle3 draft goes on after pictures, and after a prompt that comes from the cache.

Of random weights, so that nothing is said of how much is accepted.
"""

import sys

import random_models
from mixed import checked

from sparkbuild.patch_bench import Bench, Drafts, proof


def main(bench: Bench) -> None:
    """See the module."""
    path = bench.folder / "random" / "eagle3.gguf"
    for canary in ("qwen35", "llama"):
        subject = bench.canary(canary)
        drafts = Drafts(kind="draft-eagle3", model=random_models.eagle3(path, subject.model))
        checked(bench, subject, ((drafts, 1), (drafts, 4)), trained=False)


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
