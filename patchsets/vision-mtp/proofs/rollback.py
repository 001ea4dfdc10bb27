"""Four slots of a hybrid model: after a roll-back each goes on from its own recurrent state."""

import sys
from pathlib import Path
from typing import Final

from sparkbuild.patch_bench import Bench, proof

HERE: Final = Path(__file__).parent
CANARIES: Final = ("qwen35", "glm5-next")
"""A gated delta net, and linear attention with gates of its own."""
ORDERS: Final = ("0123", "2013", "3120", "1302")
"""In which the sequences are first seen; in the first none of them has to move."""
BOUND: Final = 1e-6
"""NMSE. Measured were 4e-13 at most; of another sequence's state 0.48 to 2.4."""


def main(bench: Bench) -> None:
    """See the module."""
    program = bench.compiled(HERE / "rollback.cpp")
    for canary in CANARIES:
        model = bench.canary(canary).model
        for unified in ("0", "1"):
            for order in ORDERS:
                status, said = bench.ran(program, model, unified, order)
                what = f"{canary}, order {order}, {'one cache' if unified == '1' else 'own caches'}"
                if not bench.check(f"{what}, the program", well=status == 0, found=said[-200:]):
                    continue
                errors = [float(line) for line in said.split()]
                well = len(errors) == 4 and max(errors) <= BOUND
                found = f"NMSE {' '.join(f'{error:.1e}' for error in errors)}"
                bench.check(what, well=well, found=found)


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
