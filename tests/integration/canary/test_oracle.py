"""Reference numbers of another program are PyTorch's, or are refused by name."""

from __future__ import annotations

import copy
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

REASON = "the trainer's packages come with the extra canary"
torch = pytest.importorskip("torch", reason=REASON)
pytest.importorskip("transformers", reason=REASON)
pytest.importorskip("safetensors", reason=REASON)
Image = pytest.importorskip("PIL.Image", reason=REASON)

from sparkbuild.canary.catalogue import TEXT_BOUND, load_catalogue  # noqa: E402
from sparkbuild.canary.numbers import encode_numbers  # noqa: E402
from sparkbuild.canary.run import Setup  # noqa: E402
from sparkbuild.canary.suite import (  # noqa: E402
    LIMITS,
    SUITE,
    Numbers,
    Picture,
    Reference,
    Suite,
    encode_suite,
)
from sparkbuild.canary.tasks import corpus, tokenizer  # noqa: E402
from sparkbuild.canary.train import checkpoint, entering  # noqa: E402
from sparkbuild.canary.train.batch import positions_of  # noqa: E402
from sparkbuild.canary.train.making import Made  # noqa: E402
from sparkbuild.canary.train.model import Model  # noqa: E402
from sparkbuild.canary.train.nets.glm4_moe_lite import Glm4MoeLite  # noqa: E402
from sparkbuild.canary.train.nets.glm5v import Shape, Tower, pack, token_count  # noqa: E402
from sparkbuild.canary.train.nets.llama import Llama  # noqa: E402
from sparkbuild.canary.train.nets.qwen35 import Qwen35  # noqa: E402
from sparkbuild.canary.train.oracle import Weighed, check_numbers, distances  # noqa: E402
from sparkbuild.canary.train.recording import Recorded  # noqa: E402
from sparkbuild.errors import CanaryError  # noqa: E402
from sparkbuild.files import sha256_bytes  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

TOKENS = tokenizer.load(corpus.tokenizer_json())
VOCABULARY = 512
ANSWER = (65, 66, 67)
PICTURE = np.random.default_rng(3).integers(0, 256, (28, 56, 3), dtype=np.uint8)
TEXTS: dict[str, tuple[int | str, ...]] = {
    "short": tuple(TOKENS.encode("What is it?")),
    "long": tuple(TOKENS.encode("Where is the cross? In the middle.")),
}
SEEN: dict[str, tuple[int | str, ...]] = {"seen": ("Look: ", "picture:p", "What is it?")}
NOWHERE = Path("nowhere")
SETUP = Setup(
    executable=NOWHERE,
    model=NOWHERE,
    vision=None,
    form="q8_0",
    backend="cpu",
    cache="f16",
    scratch=NOWHERE,
    log=NOWHERE,
)
Q8_0 = gguf.GGMLQuantizationType.Q8_0


def eighth(values: np.ndarray) -> np.ndarray:
    half = np.ascontiguousarray(values.astype(np.float16).astype(np.float32))
    return np.asarray(gguf.quants.dequantize(gguf.quants.quantize(half, Q8_0), Q8_0))


def transposed(net: Any, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keys' and values' part of latent attention, [heads, latent, keys] and [heads, values, …]."""
    heads = weight.reshape(net.config()["num_attention_heads"], -1, weight.shape[-1])
    keys = net.config()["qk_nope_head_dim"]
    return heads[:, :keys].transpose(0, 2, 1), heads[:, keys:]


def write_master(path: Path, net: Any, tensors: dict[str, Tensor]) -> None:
    """The tensors as the converter and the quantiser write them, under any names."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, tensor in tensors.items():
        values = tensor.detach().half().float().numpy()
        split = name.endswith("kv_b_proj.weight")
        for at, part in enumerate(transposed(net, values) if split else (values,)):
            rows = np.ascontiguousarray(part)
            if rows.ndim < 2 or rows.shape[-1] % 32:
                writer.add_tensor(f"{name}.{at}", rows)
            else:
                data = gguf.quants.quantize(rows, Q8_0)
                writer.add_tensor(f"{name}.{at}", data, raw_dtype=Q8_0)
    finish(writer)


def write_tower(path: Path, tensors: dict[str, Tensor]) -> None:
    writer = gguf.GGUFWriter(path, "clip")
    for name, tensor in tensors.items():
        kind = np.float16 if tensor.ndim > 1 else np.float32
        writer.add_tensor(name, tensor.numpy().astype(kind))
    finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def round_in_place(model: Any) -> None:
    """Our own net with the weights that the files have."""
    for weight in model.requires_grad_(requires_grad=False).parameters():
        if weight.ndim > 1:
            weight.copy_(weight.half())
    for name, weight in model.net.named_parameters():
        values = weight.numpy()
        split = name.endswith("kv_b_proj.weight")
        for rows in transposed(model.net, values) if split else (values,):
            if rows.ndim > 1 and rows.shape[-1] % 32 == 0:
                rows[...] = eighth(rows)


def asked(model: Any, prompt: tuple[int | str, ...]) -> np.ndarray:
    """What our own net says before each token of the answer."""
    ids: list[int] = []
    for part in prompt:
        if isinstance(part, int):
            ids.append(part)
        elif part.startswith("picture:"):
            marks = "<|begin_of_image|>" + "<|image|>" * token_count(PICTURE) + "<|end_of_image|>"
            ids += TOKENS.encode(marks)
        else:
            ids += TOKENS.encode(part)
    tokens = torch.tensor([[*ids, *ANSWER]])
    embedded = model.net.embed(tokens)
    image = TOKENS.id_of("<|image|>")
    pictures = [PICTURE] if image in ids else []
    if pictures:
        embedded[tokens == image] = model.tower(*pack(pictures))
    positions = None
    if model.net.axes == 3:
        positions = torch.from_numpy(positions_of(tokens[0].numpy(), image, pictures)).unsqueeze(1)
    logits = model.net.head(model.net(embedded, positions).hidden)[0].log_softmax(-1)
    rows: np.ndarray = logits[len(ids) - 1 : -1].numpy()
    return rows


@dataclass
class Room:
    """A trained canary, its files and its suite, with numbers of our own net."""

    folder: Path
    model: Any
    rounded: Any
    prompts: dict[str, tuple[int | str, ...]]

    @property
    def suite(self) -> Path:
        return self.folder / "data/llama/suite"

    @property
    def master(self) -> Path:
        return self.folder / "data/llama/llama-q8_0.gguf"

    @property
    def vision(self) -> Path | None:
        return self.folder / "tower.gguf" if self.model.tower is not None else None

    def write(self, numbers: dict[str, np.ndarray] | None = None) -> None:
        numbers = numbers or self.numbers()
        data = encode_numbers(numbers)
        buffer = io.BytesIO()
        Image.fromarray(PICTURE).save(buffer, "PNG")
        png = buffer.getvalue()
        suite = Suite(
            schema=1,
            canary="llama",
            vocabulary=VOCABULARY,
            context=128,
            pictures={"p": Picture(file="p.png", sha256=sha256_bytes(png))},
            answers=(),
            references=tuple(
                Reference(name=name, prompt=prompt, tokens=ANSWER)
                for name, prompt in self.prompts.items()
            ),
            numbers=Numbers(file="n.npz", sha256=sha256_bytes(data)),
        )
        self.suite.mkdir(parents=True, exist_ok=True)
        (self.suite / SUITE).write_bytes(encode_suite(suite))
        (self.suite / "n.npz").write_bytes(data)
        (self.suite / "p.png").write_bytes(png)
        (self.suite / LIMITS).write_text(
            'schema = 1\n[[bounds]]\nworst = 1.0\nmedian = 1.0\nreason = "a test"\n'
        )

    def numbers(self) -> dict[str, np.ndarray]:
        return {name: asked(self.rounded, prompt) for name, prompt in self.prompts.items()}

    def check(self, form: Path | None = None) -> Any:
        return check_numbers(
            self.folder,
            self.master,
            [Weighed(suite=self.suite, model=form)],
            vision=self.vision,
            workdir=self.folder / "work",
        )


def room(kind: type[Any], folder: Path) -> Room:
    torch.manual_seed(1)
    sees = kind is not Llama
    tower = Tower(Shape(depth=1, width=64, inner=64, projector=64)) if sees else None
    model = Model(kind(VOCABULARY), tower).eval()
    with torch.no_grad():
        for tensor in model.net.parameters():
            if tensor.ndim < 2:
                tensor.add_(0.2 * torch.randn_like(tensor))
    checkpoint.save(model, folder, half=True)
    rounded = copy.deepcopy(model)
    round_in_place(rounded)
    made = Room(folder, model, rounded, TEXTS | (SEEN if sees else {}))
    made.write()
    write_master(made.master, model.net, model.net.tensors())
    if model.tower is not None:
        write_tower(folder / "tower.gguf", model.tower.tensors())
    return made


@pytest.fixture
def plain(tmp_path: Path) -> Room:
    return room(Llama, tmp_path)


@pytest.mark.parametrize("kind", [Llama, Qwen35, Glm4MoeLite])
def test_equal_numbers_pass_pictures_included(kind: type[Any], tmp_path: Path) -> None:
    made = room(kind, tmp_path)
    found = made.check()
    assert found.compared == found.of == len(made.prompts)
    assert found.worst < TEXT_BOUND / 100
    # Our own numbers have the tower in float32: nothing is rounded to float16 on the way.
    assert kind is Llama or found.worst_picture < TEXT_BOUND / 100
    assert (found.worst_picture is None) == (kind is Llama)


def test_a_wrong_weight_is_refused_with_every_reference(plain: Room) -> None:
    with torch.no_grad():
        plain.rounded.net.layers[1].o_proj.weight.mul_(1.01)
    plain.write()
    with pytest.raises(CanaryError) as refused:
        plain.check()
    assert [problem.split(":")[0] for problem in refused.value.problems] == [
        "suite, short",
        "suite, long",
    ]


def test_a_swapped_reference_is_refused_alone(plain: Room) -> None:
    plain.prompts = {**TEXTS, "other": tuple(TOKENS.encode("What else?"))}
    numbers = plain.numbers()
    plain.write(numbers | {"other": numbers["short"], "short": numbers["other"]})
    with pytest.raises(CanaryError) as refused:
        plain.check()
    assert [problem.split(":")[0] for problem in refused.value.problems] == [
        "suite, short",
        "suite, other",
    ]


def test_long_ones_are_left_out_and_none_at_all_is_refused(plain: Room) -> None:
    one, work = Weighed(suite=plain.suite), plain.folder / "work"
    most = len(TEXTS["short"]) + len(ANSWER)
    found = distances(plain.folder, plain.master, one, vision=None, workdir=work, longest=most)
    assert [(each.name, each.tokens) for each in found] == [("short", most)]
    plain.prompts = {"long": TEXTS["long"] * 100}
    plain.write()
    with pytest.raises(CanaryError, match="not those of PyTorch") as refused:
        plain.check()
    assert "none of the 1 references" in refused.value.problems[0]


def test_a_master_of_other_weights_is_refused_with_the_tensor(plain: Room) -> None:
    name = "model.layers.2.mlp.up_proj.weight"
    tensors = plain.model.net.tensors()
    write_master(plain.master, plain.model.net, tensors | {name: tensors[name].roll(1)})
    with pytest.raises(CanaryError, match="not made of this checkpoint") as refused:
        plain.check()
    assert refused.value.problems == (f"{name} is not in it",)


def test_numbers_of_another_form_are_compared_with_its_weights(plain: Room) -> None:
    form = plain.folder / "form.gguf"
    name = "model.layers.0.mlp.down_proj.weight"
    tensors = plain.model.net.tensors()
    write_master(form, plain.model.net, tensors | {name: tensors[name] * 0.9})
    with torch.no_grad():
        weight = plain.rounded.net.layers[0].feed.down.weight
        weight.copy_(torch.from_numpy(eighth((tensors[name] * 0.9).numpy())))
    plain.write()
    assert plain.check(form).worst < TEXT_BOUND / 100
    with pytest.raises(CanaryError):
        plain.check()


def test_only_a_canary_with_pytorchs_numbers_is_entered(
    plain: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite: Any = None
    recorded = Recorded(suite=suite, rates={}, moved={}, missed=())
    monkeypatch.setattr(entering, "make", lambda *_, **__: Made(model=plain.master, vision=None))
    monkeypatch.setattr(entering, "record", lambda *_, **__: recorded)
    monkeypatch.setattr(entering, "forms_of", lambda *_, **__: {})
    data, told = plain.folder / "data", list[str]()

    def enter() -> Any:
        return entering.enter_canary(
            "llama",
            plain.folder,
            source=plain.folder,
            setup=SETUP,
            quantiser=plain.folder,
            data=data,
            workdir=plain.folder / "recording",
            tell=told.append,
        )

    good = plain.numbers()
    plain.write(good | {"long": good["short"]})
    with pytest.raises(CanaryError, match="not those of PyTorch"):
        enter()
    assert not list(data.glob("*.toml"))
    plain.write(good)
    assert enter().catalogue == load_catalogue(data)
    entered = load_catalogue(data).canary("llama").pytorch
    assert entered is not None
    assert (entered.compared, entered.torch) == (2, torch.__version__)
