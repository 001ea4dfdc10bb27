"""The largest canary's parts against plain loops, and the whole against transformers' class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

REASON = "the trainer's packages come with the extra canary"
torch = pytest.importorskip("torch", reason=REASON)
safetensors = pytest.importorskip("safetensors.torch", reason=REASON)
transformers = pytest.importorskip("transformers", reason=REASON)

from sparkbuild.canary.train.nets.delta import chunk_delta  # noqa: E402
from sparkbuild.canary.train.nets.dsa import Dsa, Sparse  # noqa: E402
from sparkbuild.canary.train.nets.glm5_next import Glm5Next, Shape  # noqa: E402
from sparkbuild.canary.train.nets.glm5v import Shape as TowerShape  # noqa: E402
from sparkbuild.canary.train.nets.glm5v import Tower  # noqa: E402
from sparkbuild.canary.train.nets.kda import Kda  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

SPARSE = Sparse(heads=2, head=16, pool=4, keep=12)


def recurrent(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """The delta rule as its definition says, token by token."""
    q = q / (q.square().sum(-1, keepdim=True) + 1e-6).sqrt() * q.shape[-1] ** -0.5
    k = k / (k.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    g = g if g.dim() == 4 else g.unsqueeze(-1)
    state = q.new_zeros(*q.shape[:1], q.shape[2], q.shape[3], v.shape[3])
    out = []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp().unsqueeze(-1)
        told = (k[:, t].unsqueeze(-1) * state).sum(-2)
        change = beta[:, t].unsqueeze(-1) * (v[:, t] - told)
        state = state + k[:, t].unsqueeze(-1) * change.unsqueeze(-2)
        out.append((q[:, t].unsqueeze(-1) * state).sum(-2))
    found: Tensor = torch.stack(out, 1)
    return found


@pytest.mark.parametrize("decay", ["channel", "head"])
def test_chunks_are_the_recurrence(decay: str) -> None:
    # 70 tokens: two whole chunks and a part of one. The channels' decay goes to its bound of -5,
    # the heads' has none.
    torch.manual_seed(1)
    shape = (1, 70, 2, 8)
    q, k = torch.randn(shape), torch.randn(shape)
    v = torch.randn(1, 70, 2, 6)
    g = -5 * torch.rand(shape) ** 4 if decay == "channel" else -30 * torch.rand(1, 70, 2) ** 6
    inputs = [x.double().requires_grad_() for x in (q, k, v, g, torch.rand(1, 70, 2))]
    outs = [f(*inputs) for f in (chunk_delta, recurrent)]
    torch.testing.assert_close(*outs, rtol=1e-9, atol=1e-10)
    weight = torch.randn_like(outs[0])
    grads = [torch.autograd.grad((out * weight).sum(), inputs) for out in outs]
    for own, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-7, atol=1e-8)


def dsa(tokens: int) -> tuple[Dsa, Tensor]:
    torch.manual_seed(2)
    net = Dsa(32, heads=2, head=8, latent=16, rank=16, sparse=SPARSE, eps=1e-5, gain=1.0)
    with torch.no_grad():
        net.indexer.key_norm.weight.add_(0.3 * torch.randn(SPARSE.head))
        net.indexer.key_norm.bias.add_(0.3 * torch.randn(SPARSE.head))
    return net.eval().requires_grad_(requires_grad=False), torch.randn(2, tokens, 32)


def pool_score(net: Dsa, x: Tensor, rank: Tensor, query: int, pool: int) -> float:
    """One score of the indexer, number by number."""
    indexer, at = net.indexer, slice(pool * SPARSE.pool, (pool + 1) * SPARSE.pool)
    keys = indexer.key_norm(indexer.key(x[at]))
    gates = torch.softmax(x[at] @ indexer.compress.T + indexer.ape, 0)
    key = (gates * keys).sum(0)
    queries = indexer.query(rank[query]).view(SPARSE.heads, SPARSE.head)
    weights = indexer.weights(x[query]) * SPARSE.heads**-0.5
    scores = [max(0.0, float(q @ key) * SPARSE.head**-0.5) for q in queries]
    total: float = sum(w * s for w, s in zip(weights.tolist(), scores, strict=True))
    return total


def test_the_indexer_takes_the_best_whole_pools_and_the_tail() -> None:
    tokens = 31
    net, x = dsa(tokens)
    rank = net.q_norm(net.q_a(x))
    found = net._selected(net.indexer(x, rank), torch.arange(tokens))[:, 0]
    for row in range(len(x)):
        for query in range(tokens):
            whole = (query + 1) // SPARSE.pool
            scores = [pool_score(net, x[row], rank[row], query, pool) for pool in range(whole)]
            best = sorted(scores, reverse=True)[: SPARSE.keep // SPARSE.pool]
            visible = found[row, query, : query + 1]
            pools = visible[: whole * SPARSE.pool].view(whole, SPARSE.pool)
            assert torch.equal(pools.any(1), pools.all(1))
            # Scores, not places: where no head is positive several pools have none.
            taken = [score for score, got in zip(scores, pools.any(1), strict=True) if got]
            assert sorted(taken, reverse=True) == pytest.approx(best, abs=1e-6), query
            assert visible[whole * SPARSE.pool :].all()


def test_what_is_not_selected_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = 31
    net, x = dsa(tokens)
    rank = net.q_norm(net.q_a(x))
    chosen = net._selected(net.indexer(x, rank), torch.arange(tokens))[0, 0, -1]
    before = net(x)[0][0, -1]
    # Values alone change, so that the indexer's choice stays.
    plain = net.kv_norm.forward
    for place, counts in ((int(chosen.nonzero()[0]), True), (int((~chosen).nonzero()[0]), False)):

        def other(latent: Tensor, place: int = place) -> Tensor:
            normed = plain(latent).clone()
            normed[:, place] = 0
            return normed

        monkeypatch.setattr(net.kv_norm, "forward", other)
        after = net(x)[0][0, -1]
        assert ((after - before).abs().max().item() > 1e-4) == counts
        assert torch.equal(after, before) != counts


def test_dense_training_sees_everything_and_teaches_the_indexer_alone_where_to_look() -> None:
    net, x = dsa(31)
    net.train().requires_grad_().dense.fill_(value=True)
    _, loss = net(x.requires_grad_())
    grads = torch.autograd.grad(loss, [x, *net.parameters()], allow_unused=True)
    names = ["x", *(name for name, _ in net.named_parameters())]
    taught = {n for n, grad in zip(names, grads, strict=True) if grad is not None and grad.any()}
    assert taught == {n for n in names if n.startswith("indexer.")}
    rank = net.q_norm(net.q_a(x))
    assert net._selected(net.indexer(x, rank), torch.arange(31)).all()


def test_logits_are_those_of_transformers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    # A prompt longer than what the indexer keeps (64), and no multiple of a pool or chunk.
    net = Glm5Next(Shape(vocabulary=64, ends=(1,), layers="KKD")).eval()
    with torch.no_grad():
        for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
            if tensor.is_floating_point() and tensor.dim() < 2:
                tensor.add_(0.1 * torch.randn_like(tensor))
            assert "dense" not in name or not tensor
    tower = TowerShape(depth=1, width=64, inner=64, projector=64)
    named = ("image", "video", "image_start", "image_end", "video_start", "video_end")
    config = {
        "architectures": ["Glm5NextForConditionalGeneration"],
        "model_type": "glm5_next",
        "text_config": net.config(),
        "vision_config": Tower(tower).config(),
        "tie_word_embeddings": False,
        **{f"{name}_token_id": at for at, name in enumerate(named, 2)},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = {name: tensor.contiguous().clone() for name, tensor in net.tensors().items()}
    safetensors.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model, told = transformers.Glm5NextForConditionalGeneration.from_pretrained(
        tmp_path, dtype=torch.float32, output_loading_info=True
    )
    assert not [key for key in told["missing_keys"] if "visual" not in key]
    assert all(key.startswith("model.language_model.layers.3.") for key in told["unexpected_keys"])
    ids = torch.randint(8, 64, (1, 90))
    with torch.no_grad():
        wanted = model.eval()(input_ids=ids, use_cache=False).logits
        found = net.head(net(net.embed(ids)).hidden)
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-4)


def test_in_some_rows_of_a_training_one_sparse_attention_is_heard_and_no_other() -> None:
    torch.manual_seed(0)
    shape = Shape(vocabulary=64, layers="KDKDD", width=64, linear_head=32, alone=1.0, short=0.0)
    net = Glm5Next(shape)
    sparse = [layer.attention for layer in net.layers if isinstance(layer.attention, Dsa)]
    x = net.embed(torch.randint(64, (6, 20)))

    def felt(progress: float, *, training: bool) -> Tensor:
        """[rows, sparse attentions]: whether a row's output depends on each."""
        net.train(mode=training).phase(progress)
        hidden = net(x).hidden.square().sum((1, 2))
        rows = []
        for row in hidden:
            outs = [one.out.weight for one in sparse]
            grads = torch.autograd.grad(row, outs, retain_graph=True)
            rows.append([bool(grad.any()) for grad in grads])
        found: Tensor = torch.tensor(rows)
        return found

    assert (felt(0.0, training=True).sum(1) == 1).all()
    assert felt(0.0, training=False).all()
    assert felt(0.95, training=True).all()


def test_rows_are_tried_as_often_as_the_shape_says() -> None:
    torch.manual_seed(0)
    shape = Shape(
        vocabulary=64,
        layers="KDKDD",
        width=64,
        linear_head=32,
        alone=0.35,
        short=0.25,
        together=0.8,
    )
    net = Glm5Next(shape)
    first, one, second, *others = net._trials(4000)
    heard = torch.stack([one, *others])
    assert torch.equal(first, second), "a row's linear attention forgets everywhere"
    assert 0.22 < first.float().mean() < 0.28
    alone = heard.sum(0) == 1
    assert 0.32 < alone.float().mean() < 0.38
    assert (heard[:, alone].sum(1) > alone.sum() / 4).all(), "each is heard alone as often"
    assert ((heard.sum(0) == 3) | alone).all()
    assert 0.06 < (alone & first).float().mean() < 0.12, "both come together, too"
    net.phase(0.95)
    first, one, *_ = net._trials(4000)
    assert not first.any()
    assert one.all()


def test_linear_attention_with_a_short_memory_forgets_what_is_far_back() -> None:
    torch.manual_seed(0)
    net = Kda(64, heads=2, head=32, taps=4, bound=-5.0, eps=1e-2, gain=1.0)
    x = torch.randn(2, 40, 64)
    other = x.clone()
    other[:, :20] = torch.randn(2, 20, 64)
    with torch.no_grad():
        short = torch.tensor([True, False])
        moved = (net(x, short) - net(other, short))[:, -1].abs().amax(-1)
    assert moved[0] < 1e-6
    assert moved[1] > 1e-3
