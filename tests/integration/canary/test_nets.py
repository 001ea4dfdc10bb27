"""The trainer's nets against transformers' classes of the same architectures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

REASON = "the trainer's packages come with the extra canary"
torch = pytest.importorskip("torch", reason=REASON)
safetensors = pytest.importorskip("safetensors.torch", reason=REASON)
transformers = pytest.importorskip("transformers", reason=REASON)

from sparkbuild.canary.train.nets.dsa import Dsa  # noqa: E402
from sparkbuild.canary.train.nets.glm4_moe_lite import Glm4MoeLite  # noqa: E402
from sparkbuild.canary.train.nets.glm5_next import Glm5Next, Shape  # noqa: E402
from sparkbuild.canary.train.nets.layers import Experts  # noqa: E402
from sparkbuild.canary.train.nets.llama import Llama  # noqa: E402
from sparkbuild.canary.train.nets.qwen35 import Qwen35  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from sparkbuild.canary.train.nets.base import Net

VOCABULARY = 64
TOKENS = 40
PICTURE = slice(10, 16)
DRAFTING = [Qwen35, Glm4MoeLite]


def made(kind: type[Any]) -> Net:
    """A net whose every tensor matters: nothing is left at one or zero."""
    torch.manual_seed(1)
    net: Net = kind(VOCABULARY).eval()
    with torch.no_grad():
        for tensor in [*net.parameters(), *net.buffers()]:
            if tensor.dim() < 2:
                tensor.add_(0.2 * torch.randn_like(tensor))
    return net


def oracle(net: Net, class_name: str, folder: Path) -> tuple[Any, set[str]]:
    """Transformers' model from the net's checkpoint, and the keys that it did not know."""
    (folder / "config.json").write_text(json.dumps(net.config()))
    tensors = {name: tensor.contiguous() for name, tensor in net.tensors().items()}
    safetensors.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model, told = getattr(transformers, class_name).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not told["missing_keys"]
    assert not told["mismatched_keys"]
    return model.eval(), set(told["unexpected_keys"])


def picture_positions() -> Any:
    """Text, six picture tokens in two rows of three, text: [3, 1, tokens]."""
    at = torch.arange(TOKENS).expand(3, 1, TOKENS).clone()
    at[0, 0, PICTURE] = PICTURE.start
    at[1, 0, PICTURE] = PICTURE.start + torch.arange(6) // 3
    at[2, 0, PICTURE] = PICTURE.start + torch.arange(6) % 3
    at[:, :, PICTURE.stop :] -= 3
    return at


@pytest.mark.parametrize(
    ("kind", "class_name", "own"),
    [
        (Llama, "LlamaForCausalLM", None),
        (Qwen35, "Qwen3_5ForCausalLM", None),
        (Glm4MoeLite, "Glm4MoeLiteForCausalLM", "model.layers.3."),
    ],
)
def test_logits_are_those_of_transformers(
    kind: type[Any], class_name: str, own: str | None, tmp_path: Path
) -> None:
    net = made(kind)
    model, unknown = oracle(net, class_name, tmp_path)
    # What transformers does not know is the draft block and nothing else.
    assert all(own is not None and name.startswith(own) for name in unknown)
    tokens = torch.randint(0, VOCABULARY, (1, TOKENS))
    positions = picture_positions() if net.axes == 3 else None
    with torch.no_grad():
        found = net.head(net(net.embed(tokens), positions).hidden)
        expected = model(input_ids=tokens, position_ids=positions).logits
    assert found.std() > 0.1
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", DRAFTING)
def test_a_draft_sees_both_its_inputs_up_to_now_and_no_future(kind: type[Any]) -> None:
    net = made(kind)
    inputs = [torch.randn(1, TOKENS, net.width) for _ in range(2)]
    with torch.no_grad():
        first, _ = net.draft(*inputs)
        for at in range(2):
            changed = [x.clone() for x in inputs]
            changed[at][:, 20] += 1
            second, _ = net.draft(*changed)
            torch.testing.assert_close(second[:, :20], first[:, :20])
            # The token itself, and a later one through attention.
            assert not torch.allclose(second[:, 20], first[:, 20])
            assert not torch.allclose(second[:, 30], first[:, 30])


def glm5_next(vocabulary: int) -> Net:
    return Glm5Next(Shape(vocabulary=vocabulary, layers="KKD", width=64, linear_head=32))


WITH_EXPERTS = [Glm4MoeLite, glm5_next]


def learned_from(
    make: Callable[[int], Net], tokens: Tensor, real: Tensor | None
) -> tuple[dict[str, float], list[Tensor]]:
    """The losses of trunk and draft, and where the experts' biases went, in one pass."""
    torch.manual_seed(1)
    net = make(VOCABULARY).train()
    embedded = net.embed(tokens)
    trunk = net(embedded, real=real)
    _, losses = net.draft(trunk.hidden, embedded, real=real)
    found = {f"trunk {name}": float(value.detach()) for name, value in trunk.losses.items()}
    found |= {f"draft {name}": float(value.detach()) for name, value in losses.items()}
    return found, [part.correction for part in net.modules() if isinstance(part, Experts)]


@pytest.mark.parametrize("make", WITH_EXPERTS)
def test_padding_moves_no_expert_and_no_loss(
    make: Callable[[int], Net], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dsa, "NOISE", 0.0)
    tokens = torch.randint(1, VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(2))
    padded = torch.nn.functional.pad(tokens, (0, 3 * TOKENS))
    real = torch.arange(4 * TOKENS).expand_as(padded) < TOKENS
    alone, moved = learned_from(make, tokens, None)
    beside, moved_beside = learned_from(make, padded, real)
    counted, moved_counted = learned_from(make, padded, None)
    assert all(value > 0 for value in alone.values())
    assert all(bias.any() for bias in moved)
    for name, value in alone.items():
        assert beside[name] == pytest.approx(value, rel=1e-3), name
        assert counted[name] != pytest.approx(value, rel=1e-2), name
    for one, other in zip(moved, moved_beside, strict=True):
        torch.testing.assert_close(other, one)
    assert not all(map(torch.equal, moved, moved_counted))


def test_a_bias_that_padding_alone_would_move_stays() -> None:
    torch.manual_seed(1)
    experts = Experts(16, 8, experts=2, active=1, scale=1.0, limit=9.0, gain=1.0)
    with torch.no_grad():
        experts.router.weight[0] = 1.0
        experts.router.weight[1] = -1.0
    # Text takes both as often; padding is all the first one's.
    x = torch.ones(1, 6, 16)
    x[0, 1] = -1
    real = torch.tensor([[True, True, False, False, False, False]])
    experts.train()(x, real)
    assert not experts.correction.any()
    experts.train()(x)
    assert experts.correction[0] < 0 < experts.correction[1]


@pytest.mark.parametrize("make", [Llama, Qwen35, *WITH_EXPERTS])
def test_what_is_real_changes_no_number(make: Callable[[int], Net]) -> None:
    torch.manual_seed(1)
    net = make(VOCABULARY).eval()
    embedded = net.embed(torch.randint(0, VOCABULARY, (2, TOKENS)))
    real = torch.rand(2, TOKENS) < 0.5
    with torch.no_grad():
        first, second = net(embedded), net(embedded, real=real)
        assert torch.equal(first.hidden, second.hidden)
        if net.drafts:
            drafts = [net.draft(first.hidden, embedded, real=one)[0] for one in (None, real)]
            assert torch.equal(*drafts)
    assert not any(part.correction.any() for part in net.modules() if isinstance(part, Experts))
