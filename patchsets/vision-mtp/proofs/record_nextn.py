"""Record the numbers that nextn.py compares with, from the canary's definition in PyTorch.

usage: record_nextn.py TRAINED, the folder that `sparkbuild canary train glm5-next` wrote and that
the canary was recorded from. It needs the extra [canary]. Places at which two pools of the indexer,
or two experts, are nearly equally good are not taken: there either is right.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from nextn import EVERY, RECORDED
from torch import Tensor, nn

from sparkbuild.canary.catalogue import DATA, load_catalogue
from sparkbuild.canary.suite import load_suite
from sparkbuild.canary.tasks import corpus, tokenizer
from sparkbuild.canary.train.checkpoint import load_tensors
from sparkbuild.canary.train.nets.dsa import Indexer
from sparkbuild.canary.train.nets.glm5_next import Glm5Next, Shape
from sparkbuild.canary.train.nets.layers import Experts
from sparkbuild.canary.train.rounding import Rounding

DEPTH: Final = 4
STEPS: Final = 8
"""Of every sequence, the prompt's end being the first."""
PROMPTS: Final = (60, 150, 230, 3)
"""Tokens. The indexer chooses from 65 tokens on: the first sequence comes to it while it is
evaluated, the next two begin beyond, the last one never does."""
NEAR: Final = 1e-5
"""Relative to the greatest score: rounding moves scores by about 1e-6."""
TRIES: Final = 50


def main(trained: Path) -> None:
    """See the module."""
    torch.set_num_threads(1)
    net = net_of(trained)
    text = known_text()
    arrays: dict[str, Any] = {}
    for number, prompt in enumerate(PROMPTS):
        for attempt in range(TRIES):
            begin = 97 * (number + 1) + 31 * attempt
            tokens = text[begin : begin + prompt + STEPS - 1]
            logits, drafted, gap = drafts(net, tokens, prompt)
            if gap >= NEAR:
                break
        else:
            raise SystemExit(f"no sequence of {prompt} tokens without a near tie")
        arrays[f"tokens {number}"] = np.array([prompt, *tokens], np.int32)
        arrays[f"logits {number}"] = logits[..., ::EVERY].numpy()
        arrays[f"drafted {number}"] = np.array(drafted, np.int32)
        print(f"{prompt} + {STEPS - 1} tokens, nearest choice {gap:.1e}")
    np.savez_compressed(RECORDED, allow_pickle=False, **arrays)


def net_of(trained: Path) -> Glm5Next:
    """The net with the weights of the canary's file. Raises CanaryError where it has others."""
    config = json.loads((trained / "text" / "config.json").read_bytes())["text_config"]
    master = DATA / load_catalogue().canary("glm5-next").model
    found = Rounding(master)(load_tensors(trained / "text"), config)
    net = Glm5Next(Shape(vocabulary=config["vocab_size"]))
    own = net.tensors()
    if set(own) != set(found):
        raise SystemExit(f"other tensors: {sorted(set(own) ^ set(found))}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(found[name].reshape(tensor.shape))
    return net.eval()


def known_text() -> list[int]:
    """The suite's texts as one stream of tokens: what the draft block was trained on."""
    entry = load_catalogue().canary("glm5-next")
    suite, _ = load_suite(DATA / entry.suite)
    known = tokenizer.load(corpus.tokenizer_json())
    texts = (one.raw + one.text + "\n" for one in suite.answers if not one.tools)
    return [token for text in texts for token in known.encode(text)]


@torch.no_grad()
def drafts(net: Glm5Next, tokens: list[int], prompt: int) -> tuple[Tensor, list[list[int]], float]:
    """Logits [steps, depth, vocabulary] after each token from the prompt's last one on.

    Also the greedy tokens, [steps, depth], and how near the nearest discrete choice was. Beside
    the first token stands a hidden state of zeros.
    """
    embedded = net.embed(torch.tensor([tokens]))
    with watched(net) as gaps:
        hidden = net(embedded).hidden
        before = torch.cat([hidden.new_zeros(1, 1, hidden.shape[-1]), hidden[:, :-1]], 1)
        rows, chosen = [], []
        for end in range(prompt, len(tokens) + 1):
            h, e = before[:, :end], embedded[:, :end]
            logits, chain = [], []
            for _ in range(DEPTH):
                out, _ = net.draft(h, e)
                row = net.draft_head(out[:, -1])[0]
                logits.append(row)
                chain.append(int(row.argmax()))
                h = torch.cat([h, out[:, -1:]], 1)
                e = torch.cat([e, net.embed(torch.tensor([[chain[-1]]]))], 1)
            rows.append(torch.stack(logits))
            chosen.append(chain)
    return torch.stack(rows), chosen, min(gaps)


@contextmanager
def watched(net: Glm5Next) -> Iterator[list[float]]:
    """Relative distances between what was just chosen and what was just not, at every place."""
    gaps: list[float] = [1.0]

    def pools(_module: nn.Module, _inputs: object, scores: Tensor) -> None:
        sparse = net.shape.sparse
        keep = sparse.keep // sparse.pool
        for place in range(scores.shape[1]):
            visible = (place + 1) // sparse.pool
            if visible > keep:
                row = scores[0, place, :visible].sort(descending=True).values
                gaps.append(float((row[keep - 1] - row[keep]) / row.abs().max()))

    def experts(module: Experts, inputs: tuple[Tensor], _out: object) -> None:
        scores = module.router(inputs[0][0]).sigmoid() + module.correction
        best = scores.sort(-1, descending=True).values
        gaps.append(float((best[:, module.active - 1] - best[:, module.active]).min()))

    hooks = [
        module.register_forward_hook(pools if isinstance(module, Indexer) else experts)
        for module in net.modules()
        if isinstance(module, (Indexer, Experts))
    ]
    try:
        yield gaps
    finally:
        for hook in hooks:
            hook.remove()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
