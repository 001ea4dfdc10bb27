"""A token embedding and a hidden state reach the MTP block as a token and a hidden state do.

In the three canaries with drafts, and in the architectures whose graphs had the choice already;
upstream's own tests of batches, which this patch extends, pass too.
"""

import sys
from typing import Final

from told import compared

from sparkbuild.patch_bench import Bench, proof

ARCHITECTURES: Final = (
    "cohere2moe", "deepseek2", "deepseek32", "glm-dsa", "glm5-next", "qwen35", "qwen35moe",
    "qwen3next",
)  # fmt: skip
"""Of glm4moe and nemotron_h_moe test-llama-archs has no metadata that fits a draft block."""


def main(bench: Bench) -> None:
    """See the module."""
    compared(bench, ARCHITECTURES, trained=True)
    tests = bench.compiled(bench.source / "tests" / "test-batch-alloc.cpp")
    status, said = bench.ran(tests)
    bench.check("upstream's tests of batches", well=status == 0, found=said[-120:])


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
