"""llama-server makes the prompts that the canaries are trained on, and takes answers apart."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import httpx
import numpy as np
import pytest

pytest.importorskip("jinja2", reason="the chat template is rendered by the extra [canary]")

from sparkbuild.canary.tasks import answers, chat, corpus, tokenizer
from sparkbuild.canary.tasks.sample import Sample
from sparkbuild.llama.server import Limits, running

pytestmark = pytest.mark.real

LIMITS = Limits(start=60, request=60, stop=10, memory=0, missing=1 << 40)
POSITIONS = 512
SAYABLE = 256
TOKENS = tokenizer.load(corpus.tokenizer_json())
NAMES = (*tokenizer.CONTROL, *tokenizer.MARKS)
FIXED = {dict(sample.check)["name"]: sample for sample in answers.fixed()}


def write_parrot(path: Path, samples: Sequence[Sample]) -> None:
    """A GPT-2 whose only working part is its positions: behind each prompt it says the answer.

    The prompts and answers must not overlap as ranges of positions.
    """
    positions = np.zeros((POSITIONS, SAYABLE), np.float32)
    output = np.zeros((tokenizer.VOCABULARY, SAYABLE), np.float32)
    said = 0
    for sample in samples:
        prompt, answer = map(TOKENS.encode, chat.render(sample))
        for place, token in enumerate(answer, len(prompt) - 1):
            assert not positions[place].any(), "two answers at the same place"
            positions[place, said] = output[token, said] = 1
            said += 1
    width = SAYABLE
    tensors: dict[str, np.ndarray] = {
        "token_embd.weight": np.zeros((tokenizer.VOCABULARY, width)),
        "position_embd.weight": positions,
        "output.weight": output,
        "output_norm.weight": np.ones(width),
        "output_norm.bias": np.zeros(width),
        "blk.0.attn_norm.weight": np.ones(width),
        "blk.0.attn_norm.bias": np.zeros(width),
        "blk.0.attn_qkv.weight": np.zeros((3 * width, width)),
        "blk.0.attn_qkv.bias": np.zeros(3 * width),
        "blk.0.attn_output.weight": np.zeros((width, width)),
        "blk.0.attn_output.bias": np.zeros(width),
        "blk.0.ffn_norm.weight": np.ones(width),
        "blk.0.ffn_norm.bias": np.zeros(width),
        "blk.0.ffn_up.weight": np.zeros((width, width)),
        "blk.0.ffn_up.bias": np.zeros(width),
        "blk.0.ffn_down.weight": np.zeros((width, width)),
        "blk.0.ffn_down.bias": np.zeros(width),
    }
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(width)
    writer.add_block_count(1)
    writer.add_head_count(4)
    writer.add_layer_norm_eps(1e-5)
    add_vocabulary(writer)
    for name, values in tensors.items():
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer: gguf.GGUFWriter) -> None:
    """What the converter writes for the GLM family."""
    described = json.loads(corpus.tokenizer_json())
    names = list(described["model"]["vocab"])
    kinds = [gguf.TokenType.NORMAL] * len(names)
    for token in described["added_tokens"]:
        special = token["special"]
        kinds[token["id"]] = gguf.TokenType.CONTROL if special else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("glm4")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in described["model"]["merges"]])
    writer.add_bos_token_id(TOKENS.id_of("[gMASK]"))
    writer.add_eos_token_id(TOKENS.id_of("<|endoftext|>"))
    writer.add_eot_token_id(TOKENS.id_of("<|user|>"))
    writer.add_eom_token_id(TOKENS.id_of("<|observation|>"))
    writer.add_chat_template(chat.template())


SPOKEN = ("en-capital", "think-turns", "tool-lamp", "tool-result")


@pytest.fixture(scope="module")
def client(real_build: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("parrot")
    write_parrot(folder / "parrot.gguf", [FIXED[name] for name in SPOKEN])
    with running(
        real_build.bin / "llama-server",
        ["--ctx-size", str(POSITIONS), "--parallel", "1", "--threads", "1"],
        model=folder / "parrot.gguf",
        scratch=folder / "home",
        log=folder / "server.log",
        limits=LIMITS,
    ) as server:
        yield server.client


def question(sample: Sample) -> dict[str, Any]:
    """The sample as a request of OpenAI's chat interface."""
    body: dict[str, Any] = {
        "messages": chat.messages(sample),
        "chat_template_kwargs": {"enable_thinking": sample.thinking},
    }
    return body | ({"tools": list(sample.tools)} if sample.tools else {})


def test_the_template_makes_the_prompts_that_are_trained_on(client: httpx.Client) -> None:
    kinds = {dict(sample.check)["kind"]: name for name, sample in FIXED.items()}
    # One conversation of each kind: the server analyses the template anew for every request.
    for name in {*kinds.values(), *SPOKEN, "tool-result-thought"}:
        sample = FIXED[name]
        made = client.post("/apply-template", json=question(sample)).json()["prompt"]
        assert made == chat.render(sample)[0], name


def test_without_a_word_about_thinking_the_thought_is_open(client: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "?"}]}
    prompt = client.post("/apply-template", json=body).json()["prompt"]
    assert prompt == "[gMASK]<sop><|user|>\n?<|assistant|>\n<think>"


def test_tokens_are_those_of_the_trainers_own_encoder(client: httpx.Client) -> None:
    rng = random.Random(4)  # noqa: S311
    odd = "\n\r\t½Ⅷéßя中िन🦙\u200d\u00a0\u3000²٣"
    atoms = [*map(chr, range(32, 127)), *odd, " the", " s", "'s", "'Re", *NAMES]
    texts = ["".join(rng.choices(atoms, k=400)) for _ in range(20)]
    texts += ["".join(chat.render(sample)) for sample in FIXED.values()]
    for text in texts:
        body = {"content": text, "parse_special": True}
        assert client.post("/tokenize", json=body).json()["tokens"] == TOKENS.encode(text)


@pytest.mark.parametrize("name", SPOKEN)
def test_an_answer_is_taken_apart(client: httpx.Client, name: str) -> None:
    sample = FIXED[name]
    body = {**question(sample), "max_tokens": 200, "temperature": 0}
    answer = client.post("/v1/chat/completions", json=body).json()
    [choice] = answer["choices"]
    message = choice["message"]
    calls = [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls", [])
    ]
    said = (message["content"] or "", message.get("reasoning_content", ""), calls)
    assert said == chat.expected(sample)
    assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
    # The end token came from the model: one more token than the answer has, and no more.
    assert answer["usage"]["completion_tokens"] == len(TOKENS.encode(sample.answer)) + 1
