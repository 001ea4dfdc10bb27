"""The tiny model: the same bytes everywhere, and an independent reference that is the llama."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.errors import SmokeError
from sparkbuild.files import sha256_bytes
from sparkbuild.smoke import tiny, tokenizer
from sparkbuild.smoke.reference import Array, Past, Reference, nmse, rotate
from sparkbuild.smoke.suite import GreedyCase, Logprobs, encode_logprobs, load_suite

SUITE, LOGPROBS = load_suite("tiny")
WEIGHTS = tiny.weights()
REFERENCE = Reference(WEIGHTS, tiny.SHAPE)
END = tokenizer.vocabulary().end


def changed(name: str, values: np.ndarray) -> Reference:
    return Reference({**WEIGHTS, name: values.astype(np.float32)}, tiny.SHAPE)


def test_the_file_is_the_same_twice_and_the_recorded_one() -> None:
    first = tiny.model_bytes()
    assert first == tiny.model_bytes()
    assert sha256_bytes(first) == SUITE.model.sha256
    assert len(first) < 3_000_000


def test_a_cached_file_is_reused_only_while_it_is_whole(tmp_path: Path) -> None:
    path = tiny.ensure(tmp_path, sha256=SUITE.model.sha256)
    first = path.stat()
    assert tiny.ensure(tmp_path, sha256=SUITE.model.sha256).stat().st_ino == first.st_ino
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    tiny.ensure(tmp_path, sha256=SUITE.model.sha256)
    assert sha256_bytes(path.read_bytes()) == SUITE.model.sha256
    assert [entry.name for entry in tmp_path.iterdir()] == [tiny.FILE]


def test_another_digest_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    with pytest.raises(SmokeError) as refusal:
        tiny.ensure(tmp_path, sha256="0" * 64)
    assert SUITE.model.sha256 in refusal.value.problems[0]
    assert not list(tmp_path.iterdir())


def test_gguf_reads_back_every_weight_bit_for_bit(tmp_path: Path) -> None:
    path = tiny.ensure(tmp_path, sha256=SUITE.model.sha256)
    read = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
    expected = tiny.weights()
    assert read.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(read[name], values), name


def test_weights_are_finite_distinct_and_of_the_intended_spread() -> None:
    tensors = tiny.weights()
    digests = {sha256_bytes(values.tobytes()) for values in tensors.values()}
    assert len(digests) == len(tensors)
    for name, values in tensors.items():
        assert np.isfinite(values).all(), name
    assert abs(tensors["token_embd.weight"].std() - 1) < 0.02
    assert abs(tensors["output_norm.weight"].mean() - 1) < 0.1


def test_every_recorded_number_is_what_the_reference_says() -> None:
    for case in SUITE.greedy:
        found = REFERENCE.greedy(case.prompt, count=case.count, end=END)
        assert found.tokens == case.tokens, case.name
        assert found.stopped == (case.stop == "eos"), case.name
        assert 0 <= min(found.margins) - case.margin < 1e-3, case.name
        assert tokenizer.decode(found.tokens).decode() == case.text
    for chat in SUITE.chat:
        assert tuple(tokenizer.chat_prompt(chat.user)) == chat.prompt
        found = REFERENCE.greedy(chat.prompt, count=len(chat.tokens), end=END)
        assert (found.tokens, found.stopped) == (chat.tokens, False)
        assert 0 <= min(found.margins) - chat.margin < 1e-3
        assert tokenizer.decode(found.tokens).decode() == chat.text
    for text in SUITE.tokenizer:
        assert tuple(tokenizer.encode(text.text)) == text.tokens


def test_recorded_log_probabilities_are_the_references() -> None:
    prompts = {case.name: case.prompt for case in SUITE.greedy}
    assert len(LOGPROBS.first_token) >= 3
    for name, values in LOGPROBS.first_token.items():
        expected = REFERENCE.log_probabilities(prompts[name])
        assert len(values) == len(tokenizer.vocabulary().tokens)
        assert np.abs(expected - values).max() < 1e-6
        assert abs(np.exp(values).sum() - 1) < 1e-4


def test_no_recorded_choice_is_a_close_one_and_no_answer_is_a_loop() -> None:
    """0.3 is nine times the worst change of a logit that TF32 and an f16 cache make (0.034)."""
    margins = [case.margin for case in SUITE.greedy] + [case.margin for case in SUITE.chat]
    assert min(margins) >= 0.3
    for case in SUITE.greedy:
        assert len(set(case.tokens)) > 0.75 * len(case.tokens), case.name
    assert max(len(case.prompt) for case in SUITE.greedy) > 2 * 64
    assert {case.stop for case in SUITE.greedy} == {"limit", "eos"}


@pytest.mark.parametrize("case", SUITE.greedy, ids=lambda case: case.name)
def test_the_answer_depends_on_the_first_token(case: GreedyCase) -> None:
    prompt = list(case.prompt)
    prompt[0] = (prompt[0] + 1) % tokenizer.vocabulary().ordinary
    other = REFERENCE.greedy(prompt, count=12, end=END)
    assert other.tokens != case.tokens[:12]


class Rounding(Reference):
    """The same arithmetic with operands of every product rounded to so many mantissa bits."""

    bits = 10

    def _project(self, name: str, values: Array) -> Array:
        weights = self._weights[f"{name}.weight"]
        return np.asarray(rounded(values, self.bits) @ rounded(weights, self.bits).T)

    def _heads(self, name: str, values: Array, heads: int) -> Array:
        return rounded(super()._heads(name, values, heads), 10)


class RoundingToBf16(Rounding):
    bits = 7


def rounded(values: Array, bits: int) -> Array:
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent)


def worst_nmse(other: Reference, *names: str) -> float:
    prompts = {case.name: case.prompt for case in SUITE.greedy}
    return max(
        nmse(other.log_probabilities(prompts[name]), np.asarray(LOGPROBS.first_token[name]))
        for name in names or LOGPROBS.first_token
    )


def test_healthy_rounding_stays_far_below_the_bound_and_halved_precision_does_not() -> None:
    limit = SUITE.logprobs.nmse.limit
    assert worst_nmse(Rounding(WEIGHTS, tiny.SHAPE)) < limit / 10
    assert worst_nmse(REFERENCE) < 1e-12


def test_healthy_rounding_changes_no_recorded_token() -> None:
    """BF16 products are eight times coarser than the TF32 that ggml-cuda allows itself."""
    for kind in (Rounding, RoundingToBf16):
        noisy = kind(WEIGHTS, tiny.SHAPE)
        for case in SUITE.greedy:
            if kind is Rounding or case.name == "one-token":
                assert noisy.greedy(case.prompt, count=case.count, end=END).tokens == case.tokens


@pytest.mark.parametrize("name", sorted(WEIGHTS))
def test_every_tensor_shows_in_the_log_probabilities(name: str) -> None:
    values = WEIGHTS[name]
    for other in (values * np.float32(1.1), np.roll(values, 1, axis=0)):
        broken = changed(name, other)
        limit = SUITE.logprobs.nmse.limit
        assert worst_nmse(broken, "short") > limit or worst_nmse(broken, "medium") > limit


def test_the_past_does_not_see_the_future() -> None:
    tokens = list(SUITE.greedy[2].prompt)
    whole = REFERENCE.logits(tokens)
    assert np.allclose(whole[:20], REFERENCE.logits(tokens[:20]), atol=1e-12)
    assert not np.allclose(whole[-1], REFERENCE.logits([tokens[0] + 1, *tokens[1:]])[-1], atol=0.1)


def test_one_by_one_is_the_same_as_at_once() -> None:
    tokens = list(SUITE.greedy[2].prompt)
    past: Past = {}
    steps = [REFERENCE.logits([token], past)[0] for token in tokens]
    assert np.allclose(np.array(steps), REFERENCE.logits(tokens), atol=1e-10)


def test_rotation_is_relative_keeps_lengths_and_starts_at_nothing() -> None:
    values = np.random.Generator(np.random.PCG64(1)).uniform(-1, 1, (2, 1, 64))
    query, key = values[:1], values[1:]

    def score(first: int, second: int) -> float:
        turned = rotate(query, np.array([first]), base=10000.0)
        other = rotate(key, np.array([second]), base=10000.0)
        return float((turned * other).sum())

    assert score(5, 3) == pytest.approx(score(105, 103))
    assert score(5, 3) != pytest.approx(score(5, 4))
    far = rotate(query, np.array([1234]), base=10000.0)
    assert np.linalg.norm(far) == pytest.approx(np.linalg.norm(query))
    assert np.array_equal(rotate(query, np.array([0]), base=10000.0), query)
    quarter = rotate(np.array([[[1.0, 0.0]]]), np.array([1]), base=1.0)
    assert quarter[0, 0] == pytest.approx([np.cos(1), np.sin(1)])


def test_hidden_units_and_heads_may_change_places_together_but_not_alone() -> None:
    weights = WEIGHTS
    prompt = SUITE.greedy[1].prompt
    expected = REFERENCE.log_probabilities(prompt)
    order = np.arange(tiny.SHAPE.feed_forward)[::-1]
    units = dict(weights)
    for name in ("ffn_gate", "ffn_up"):
        units[f"blk.1.{name}.weight"] = weights[f"blk.1.{name}.weight"][order]
    alone = Reference(units, tiny.SHAPE).log_probabilities(prompt)
    units["blk.1.ffn_down.weight"] = weights["blk.1.ffn_down.weight"][:, order]
    together = Reference(units, tiny.SHAPE).log_probabilities(prompt)
    assert np.allclose(together, expected, atol=1e-12)
    assert nmse(alone, expected) > 1e-2

    head = tiny.SHAPE.head  # query heads 0 and 1 share the first key head
    swap = np.r_[head : 2 * head, 0:head, 2 * head : 4 * head]
    heads = dict(weights)
    heads["blk.0.attn_q.weight"] = weights["blk.0.attn_q.weight"][swap]
    heads["blk.0.attn_output.weight"] = weights["blk.0.attn_output.weight"][:, swap]
    together = Reference(heads, tiny.SHAPE).log_probabilities(prompt)
    assert np.allclose(together, expected, atol=1e-12)
    across = np.r_[2 * head : 4 * head, 0 : 2 * head]  # other key heads: grouping matters
    heads["blk.0.attn_q.weight"] = weights["blk.0.attn_q.weight"][across]
    heads["blk.0.attn_output.weight"] = weights["blk.0.attn_output.weight"][:, across]
    assert nmse(Reference(heads, tiny.SHAPE).log_probabilities(prompt), expected) > 1e-2


def test_a_norms_input_may_be_scaled() -> None:
    weights = WEIGHTS
    scaled = changed("token_embd.weight", weights["token_embd.weight"] * np.float32(4))
    assert nmse(scaled.log_probabilities([1, 2]), REFERENCE.log_probabilities([1, 2])) > 1e-3
    values = np.full((1, tiny.SHAPE.embedding), 3.0)
    normed = REFERENCE._normed("output_norm", values)
    assert normed[0] == pytest.approx(weights["output_norm.weight"], rel=1e-5)


def test_nmse_is_nan_where_a_value_is() -> None:
    expected = np.arange(4.0)
    assert nmse(expected, expected) == 0
    assert not nmse(np.array([0, 1, np.nan, 3]), expected) <= 1e9
    assert nmse(np.full(4, expected.mean()), expected) == pytest.approx(1)


@given(st.text())
def test_text_survives_the_tokenizer(text: str) -> None:
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text.encode()
    assert all(token < tokenizer.vocabulary().ordinary for token in tokens)


def test_merges_follow_their_ranks() -> None:
    known = tokenizer.vocabulary()
    assert len(set(known.tokens)) == len(known.tokens) == 320
    found = [known.tokens[token] for token in tokenizer.encode(" the thing")]
    assert found == ["Ġthe", "Ġ", "th", "ing"]  # "t h" outranks "Ġ t"
    for merge in known.merges:
        left, right = merge.split(" ")
        assert {left, right, left + right} <= set(known.tokens)
        assert (left + right).removeprefix("Ġ").isalpha()


def test_the_recorded_file_is_written_as_it_is_read() -> None:
    path = Path(tiny.__file__).parent / "suites" / SUITE.logprobs.file
    assert encode_logprobs(LOGPROBS) == path.read_text()
    assert isinstance(LOGPROBS, Logprobs)
