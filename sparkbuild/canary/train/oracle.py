"""Reference numbers against PyTorch: the same weights and prompts, transformers' own classes."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from transformers.models.glm5_next.configuration_glm5_next import Glm5NextVisionConfig
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextVisionModel

from sparkbuild.canary.catalogue import PICTURE_BOUND, TEXT_BOUND, Compared
from sparkbuild.canary.gguf.weights import nmse
from sparkbuild.canary.numbers import load_numbers
from sparkbuild.canary.suite import PICTURE, Reference, load_pictures, load_suite
from sparkbuild.canary.tasks import corpus, tokenizer
from sparkbuild.canary.tasks.chat import IMAGE
from sparkbuild.canary.tasks.drawing import array
from sparkbuild.canary.train.batch import positions_of
from sparkbuild.canary.train.checkpoint import WEIGHTS, load_tensors
from sparkbuild.canary.train.nets.glm5v import DEVIATION, MEAN, PATCH, pack, token_count
from sparkbuild.canary.train.rounding import Rounding
from sparkbuild.errors import CanaryError
from sparkbuild.files import write_atomic

LONGEST: Final = 700
"""Tokens of a reference that is compared: on a slow core transformers' glm5_next takes a second for
100, and its sparse attention grows with the square."""
_TOWER: Final = "model.visual."


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """A suite and the files whose numbers it has; ``model`` None: those of the master."""

    suite: Path
    model: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Distance:
    """How far a reference's numbers are from PyTorch's."""

    suite: str
    name: str
    tokens: int
    pictures: bool
    nmse: float

    @property
    def bound(self) -> float:
        """What ``nmse`` may be."""
        return PICTURE_BOUND if self.pictures else TEXT_BOUND


def check_numbers(
    trained: Path,
    master: Path,
    suites: Sequence[Weighed],
    *,
    vision: Path | None,
    workdir: Path,
    tell: Callable[[str], None] = lambda _: None,
) -> Compared:
    """Compare the references of a canary's suites with PyTorch's numbers.

    ``trained`` is what the trainer wrote, ``master`` and ``vision`` are the files made of it.
    Raises CanaryError naming the references that are too far off, or the weights that are not in
    the files.
    """
    found: list[Distance] = []
    total = 0
    for one in suites:
        tell(f"the numbers of {one.suite.name} against PyTorch")
        total += len(load_suite(one.suite)[0].references)
        found += distances(trained, master, one, vision=vision, workdir=workdir)
    far = [one for one in found if not one.nmse <= one.bound]
    if far or not found:
        raise CanaryError(
            f"reference numbers of {master.stem} are not those of PyTorch",
            problems=[
                f"{one.suite}, {one.name}: NMSE {one.nmse:.3g}, expected at most {one.bound:.3g}"
                for one in far
            ]
            or [f"none of the {total} references is short enough to be compared"],
            evidence=[one.suite for one in suites],
            next_step="find out which of llama.cpp, converter and quantiser is wrong; then record",
        )
    seen = [one.nmse for one in found if one.pictures]
    return Compared(
        compared=len(found),
        of=total,
        longest=max(one.tokens for one in found),
        median=median(one.nmse for one in found),
        worst=max((one.nmse for one in found if not one.pictures), default=0.0),
        worst_picture=max(seen, default=None),
        transformers=transformers.__version__,
        torch=str(torch.__version__),
    )


def distances(
    trained: Path,
    master: Path,
    one: Weighed,
    *,
    vision: Path | None,
    workdir: Path,
    longest: int = LONGEST,
) -> list[Distance]:
    """Every reference of at most ``longest`` tokens, in the suite's order. Raises CanaryError."""
    suite, _ = load_suite(one.suite)
    numbers, pngs = load_numbers(one.suite, suite), load_pictures(one.suite, suite)
    eye = _tower(trained / "vision", vision) if vision is not None else None
    model = _Model(_language(trained / "text", master, one.model, workdir), eye)
    found = []
    for reference in suite.references:
        shown = [
            array(Image.open(io.BytesIO(pngs[part.removeprefix(PICTURE)])))
            for part in reference.prompt
            if isinstance(part, str) and part.startswith(PICTURE)
        ]
        tokens = _tokens(reference, [token_count(picture) for picture in shown])
        if len(tokens) > longest:
            continue
        rows = model.log_probabilities(tokens, shown)[-len(reference.tokens) - 1 : -1]
        found.append(
            Distance(
                suite=one.suite.name,
                name=reference.name,
                tokens=len(tokens),
                pictures=bool(shown),
                nmse=nmse(rows.numpy(), numbers[reference.name]),
            )
        )
    return found


def _tokens(reference: Reference, counts: Sequence[int]) -> list[int]:
    """A reference's prompt and its answer, a picture as so many tokens between its marks."""
    known, sizes = tokenizer.load(corpus.tokenizer_json()), iter(counts)
    tokens: list[int] = []
    for part in reference.prompt:
        if isinstance(part, int):
            tokens.append(part)
        elif part.startswith(PICTURE):
            marked = f"<|begin_of_image|>{IMAGE * next(sizes)}<|end_of_image|>"
            tokens += known.encode(marked)
        else:
            tokens += known.encode(part)
    return [*tokens, *reference.tokens]


class _Model:
    """A language model of transformers, with its tower or none."""

    def __init__(self, net: Any, tower: Any | None) -> None:
        self.net, self.tower = net, tower
        self.image = tokenizer.load(corpus.tokenizer_json()).id_of(IMAGE)

    @torch.no_grad()
    def log_probabilities(self, tokens: list[int], shown: list[NDArray[Any]]) -> Tensor:
        """[tokens, vocabulary], each row of what follows the token."""
        ids = torch.tensor([tokens])
        embedded = self.net.get_input_embeddings()(ids)
        if shown:
            embedded[ids == self.image] = self._seen(shown)
        places = {}
        if "mrope_section" in (getattr(self.net.config, "rope_parameters", None) or {}):
            at = torch.from_numpy(positions_of(ids[0].numpy(), self.image, shown))
            places["position_ids"] = at.unsqueeze(1)
        logits: Tensor = self.net(inputs_embeds=embedded, use_cache=False, **places).logits
        return logits[0].float().log_softmax(-1)

    def _seen(self, shown: list[NDArray[Any]]) -> Tensor:
        if self.tower is None:
            raise CanaryError(
                "a reference has a picture, and the canary no tower",
                next_step="train a canary that sees, or record without papers of pictures",
            )
        patches, grids = pack(shown)
        mean, deviation = (_of_channels(values) for values in (MEAN, DEVIATION))
        pixels = ((patches.float() / 255).view(-1, 3, 1, PATCH, PATCH) - mean) / deviation
        twice = pixels.expand(-1, -1, 2, -1, -1).reshape(len(pixels), -1)
        seen: Tensor = self.tower(twice, torch.tensor([[1, *grid] for grid in grids])).pooler_output
        return seen


def _of_channels(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values).view(3, 1, 1, 1)


def _language(text: Path, master: Path, form: Path | None, workdir: Path) -> Any:
    """The class that the configuration names, with the weights that the file has."""
    config = json.loads((text / "config.json").read_bytes())
    content = Rounding(master, form)(load_tensors(text), config.get("text_config", config))
    workdir.mkdir(parents=True, exist_ok=True)
    save_file(content, workdir / WEIGHTS, {"format": "pt"})
    write_atomic(workdir / "config.json", json.dumps(_loadable(config)).encode())
    kind = getattr(transformers, config["architectures"][0])
    with _quiet():
        model, told = kind.from_pretrained(
            workdir, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
        )
    missing = sorted(name for name in told["missing_keys"] if not name.startswith(_TOWER))
    if missing:
        raise CanaryError(
            f"transformers does not find all of {config['architectures'][0]} in the checkpoint",
            problems=[f"{name} is missing" for name in missing],
            evidence=[text],
            next_step="take the release of transformers that the extra [canary] pins",
        )
    return model.eval()


def _loadable(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as transformers wants it; a tower that is not there is made very small."""
    result = dict(config)
    if result.get("model_type") == "glm5_next" and "vision_config" not in result:
        result["vision_config"] = {
            "depth": 1,
            "hidden_size": 64,
            "num_heads": 1,
            "intermediate_size": 64,
            "out_hidden_size": result["text_config"]["hidden_size"],
            "projection_intermediate_size": 64,
            "patch_size": PATCH,
        }
    return result


def _tower(checkpoint: Path, vision: Path) -> Any:
    """The tower's class with the weights that the file has."""
    config = json.loads((checkpoint / "config.json").read_bytes())["vision_config"]
    content = Rounding(vision)(load_tensors(checkpoint), {})
    tower: Any = Glm5NextVisionModel(Glm5NextVisionConfig(**config))
    tower.load_state_dict({name.removeprefix(_TOWER): value for name, value in content.items()})
    return tower.eval()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' own bar and its report on the draft block, which it does not know."""
    told: Any = transformers.logging
    level = told.get_verbosity()
    shown = told.is_progress_bar_enabled()
    told.set_verbosity_error()
    told.disable_progress_bar()
    try:
        yield
    finally:
        told.set_verbosity(level)
        if shown:
            told.enable_progress_bar()
