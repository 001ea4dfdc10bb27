"""A trained model as the folder that the pinned llama.cpp's converter reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sparkbuild.canary.tasks import chat, corpus, tokenizer
from sparkbuild.canary.tasks.sample import Tokenizer
from sparkbuild.canary.train.model import Model
from sparkbuild.canary.train.nets.glm5v import preprocessor_config
from sparkbuild.files import write_atomic

_IMAGE_TOKENS: Final = {
    "image_token_id": "<|image|>",
    "image_start_token_id": "<|begin_of_image|>",
    "image_end_token_id": "<|end_of_image|>",
    "video_token_id": "<|video|>",
    "video_start_token_id": "<|begin_of_video|>",
    "video_end_token_id": "<|end_of_video|>",
}
"""Keys of ``config.json`` that name tokens."""
ENDS: Final = ("<|endoftext|>", "<|user|>", "<|observation|>")
"""Tokens that end an answer, in the order of GLM's ``eos_token_id``."""
WEIGHTS: Final = "model.safetensors"


def save(model: Model, folder: Path, *, half: bool = False) -> None:
    """Write text model, tokenizer and, where the model sees, the tower to ``text`` and ``vision``.

    ``half`` stores matrices as float16: enough for what becomes Q8_0, and half the size.
    """
    data = corpus.tokenizer_json()
    known = tokenizer.load(data)
    text = folder / "text"
    text.mkdir(parents=True, exist_ok=True)
    tokenizer.save(text, data, chat_template=chat.template())
    _write(text, text_config(model, known), model.net.tensors(), half=half)
    if model.tower is None:
        return
    vision = folder / "vision"
    vision.mkdir(exist_ok=True)
    write_atomic(vision / "preprocessor_config.json", _json(preprocessor_config()))
    _write(vision, vision_config(model, known), model.tower.tensors(), half=half)


def text_config(model: Model, known: Tokenizer) -> dict[str, Any]:
    """``config.json`` of the language model; glm5-next's is the part of a whole."""
    own = model.net.config()
    if own.get("model_type") != "glm5_next_text":
        return own
    return _whole(known, text=own, vision=None)


def vision_config(model: Model, known: Tokenizer) -> dict[str, Any]:
    """``config.json`` of the tower; of the language model it states the width alone."""
    if model.tower is None:
        raise ValueError("the model has no tower")
    text = {"model_type": "glm5_next_text", "hidden_size": model.net.width}
    return _whole(known, text=text, vision=model.tower.config())


def _whole(
    known: Tokenizer, *, text: dict[str, Any], vision: dict[str, Any] | None
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "architectures": ["Glm5NextForConditionalGeneration"],
        "model_type": "glm5_next",
        "text_config": text,
        "tie_word_embeddings": False,
    }
    if vision is not None:
        result["vision_config"] = vision
    return result | {key: known.id_of(token) for key, token in _IMAGE_TOKENS.items()}


def _write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], *, half: bool) -> None:
    write_atomic(folder / "config.json", _json(config))
    content = {
        name: value.detach().to("cpu", torch.float16 if half and value.ndim > 1 else torch.float32)
        for name, value in tensors.items()
    }
    new = folder / f"{WEIGHTS}.new"
    save_file({k: v.contiguous().clone() for k, v in content.items()}, new, {"format": "pt"})
    new.replace(folder / WEIGHTS)


def load_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors that ``save`` wrote to one of the folders, as float32."""
    return {name: value.float() for name, value in load_file(folder / WEIGHTS).items()}


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
