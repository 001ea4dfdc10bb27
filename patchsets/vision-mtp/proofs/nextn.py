"""The NextN block of glm5-next gives PyTorch's numbers, however it is evaluated.

Chained drafts after every token: sequences side by side and alone, in large and small
micro-batches, rolled back each time, saved and restored under other ids. The numbers are those of
the canary's own definition in PyTorch (see record_nextn.py).
"""

import sys
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.patch_bench import Bench, proof

HERE: Final = Path(__file__).parent
RECORDED: Final = HERE / "nextn.npz"
EVERY: Final = 8
"""Of the vocabulary every eighth number is recorded."""
BOUND: Final = 1e-9
"""NMSE of a sequence's logits at one depth. Float32 adds up in another order than PyTorch: measured
were 8e-12 at most; with the parts of the joined input swapped it is 1.0, with another norm 1.5e-2.
"""
WAYS: Final = (
    # name, sequences, micro-batch, step at which contexts are saved and restored
    ("four at once", (0, 1, 2, 3), 512, 0),
    ("four at once, micro-batch 8", (0, 1, 2, 3), 8, 0),
    ("four at once, saved and restored under other ids", (0, 1, 2, 3), 64, 3),
    *((f"sequence {number} alone", (number,), 64, 2) for number in range(4)),
)

Logits = NDArray[np.float32]
Ids = NDArray[np.int32]


def main(bench: Bench) -> None:
    """See the module."""
    model = bench.canary("glm5-next").model
    program = bench.compiled(HERE / "nextn.cpp")
    recorded = np.load(RECORDED)
    for name, numbers, ubatch, move in WAYS:
        sequences = [recorded[f"tokens {number}"] for number in numbers]
        depth = recorded["logits 0"].shape[1]
        lines = "".join(" ".join(map(str, sequence)) + "\n" for sequence in sequences)
        tokens, out = bench.folder / "nextn.tokens", bench.folder / "nextn.out"
        tokens.write_text(lines, encoding="utf-8")
        status, said = bench.ran(program, model, tokens, out, str(depth), str(ubatch), str(move))
        if not bench.check(f"{name}, the program", well=status == 0, found=said[-300:] or "ended"):
            continue
        for number, (logits, drafted) in zip(numbers, read(out, sequences, depth), strict=True):
            wanted, chosen = recorded[f"logits {number}"], recorded[f"drafted {number}"]
            errors = [nmse(logits[:, d], wanted[:, d]) for d in range(depth)]
            same = int((drafted == chosen).sum())
            found = f"NMSE {' '.join(f'{error:.1e}' for error in errors)}, "
            found += f"{same} of {chosen.size} drafted tokens"
            well = max(errors) <= BOUND and same == chosen.size
            bench.check(f"{name}, sequence {number}", well=well, found=found)


def read(out: Path, sequences: list[Ids], depth: int) -> list[tuple[Logits, Ids]]:
    """Each sequence's recorded part of the logits, [steps, depth, ids], and its drafted ids."""
    values = np.fromfile(out, np.float32)
    lines = out.with_name(f"{out.name}.tokens").read_text(encoding="utf-8").splitlines()
    steps = [len(sequence) - 1 - int(sequence[0]) + 1 for sequence in sequences]
    vocabulary = values.size // (sum(steps) * depth)
    found, at = [], 0
    for count, line in zip(steps, lines, strict=True):
        size = count * depth * vocabulary
        logits = values[at : at + size].reshape(count, depth, vocabulary)[..., ::EVERY]
        found.append((logits, np.array(line.split(), np.int32).reshape(count, depth)))
        at += size
    return found


def nmse(found: Logits, wanted: Logits) -> float:
    """Squared error over the wanted numbers' squares."""
    error = np.square(found.astype(np.float64) - wanted).sum()
    return float(error / np.square(wanted.astype(np.float64)).sum())


if __name__ == "__main__":
    sys.exit(proof(sys.argv, main))
