"""Vision: is the mmproj whole, and does it go with the model."""

from __future__ import annotations

from sparkbuild.model.book import book
from sparkbuild.model.checks.build import projector_of
from sparkbuild.model.checks.keys import keys_finding, lacking
from sparkbuild.model.checks.subject import Subject
from sparkbuild.model.finding import Finding, State, listed, not_asked, shown
from sparkbuild.model.read import Model

_CLIP = "clip"
_OTHER = "name the mmproj that was made from the same model as the --model file"


def mmproj(subject: Subject) -> Finding:
    """The file given as mmproj is one, with an encoder for pictures."""
    vision = subject.vision
    expected = "general.architecture clip, with a vision encoder"
    if vision is None:
        return not_asked("mmproj")
    found = f"{vision.path.name}: {shown(vision.architecture)}"
    encoder = vision.values.get("clip.has_vision_encoder")
    right = vision.architecture == _CLIP and encoder is True
    return Finding(
        name="mmproj",
        state="ok" if right else "fault",
        expected=expected,
        found=found if right else f"{found}, clip.has_vision_encoder {shown(encoder)}",
        reason="" if right else "llama-server ends with `Failed to load CLIP model`",
        next_step="" if right else _OTHER,
    )


def projector_keys(subject: Subject) -> Finding:
    """Every key and tensor is there without which the vision tower is refused."""
    vision = subject.vision
    known = book().projects(projector_of(vision))
    if vision is None:
        return not_asked("mmproj keys")
    keys = [*book().vision.required, *(known.required if known else ())]
    tensors = known.tensors if known else ()
    wrong = lacking(vision, keys)
    wrong += [f"{name} is missing" for name in tensors if name not in vision.tensors]
    wrong += [
        f"{key}: expected 3 numbers"
        for key in ("clip.vision.image_mean", "clip.vision.image_std")
        if isinstance(value := vision.values.get(key), tuple) and len(value) != 3
    ]
    return keys_finding("mmproj keys", len(keys) + len(tensors), wrong)


def projector_width(subject: Subject) -> Finding:
    """The projector gives vectors as long as the model's embeddings."""
    vision, model = subject.vision, subject.model
    wanted = model.number(model.key("embedding_length"))
    if vision is None or wanted is None:
        return not_asked("projector width")
    place, width = width_of(vision, projector_of(vision))
    state: State = "ok"
    reason = ""
    if width is None:
        state, reason = "note", "not known where this projector's width stands"
    elif width != wanted:
        state = "fault" if book().projects(projector_of(vision)) else "warning"
        reason = "llama-server ends with `mismatch between text model and mmproj`"
    return Finding(
        name="projector width",
        state=state,
        expected=f"{wanted}, embedding_length of {model.path.name}",
        found=f"{'none' if width is None else width}, {place} of {vision.path.name}",
        reason=reason,
        next_step=_OTHER if state in {"fault", "warning"} else "",
    )


def picture_tokens(subject: Subject) -> Finding:
    """The vocabulary has the tokens that go around a picture."""
    known = book().projects(projector_of(subject.vision))
    tokens = subject.model.texts("tokenizer.ggml.tokens") or ()
    if known is None or not tokens:
        return Finding(
            name="picture tokens", state="ok", expected="none known", found="not looked for"
        )
    lost = [token for token in known.tokens if token not in tokens]
    return Finding(
        name="picture tokens",
        state="warning" if lost else "ok",
        expected=" and ".join(known.tokens),
        found=f"no {listed(lost)}" if lost else "both",
        reason="mtmd writes them as plain text where they are no tokens, which the model never saw"
        if lost
        else "",
        next_step=_OTHER if lost else "",
    )


def width_of(vision: Model, name: str) -> tuple[str, int | None]:
    """Where the width of a projector of that name stands, and how many numbers it is."""
    known = book().projects(name)
    if known is None:
        key = "clip.vision.projection_dim"
        return key, vision.number(key)
    tensor = vision.tensors.get(known.width)
    if tensor is None or len(tensor.shape) <= known.axis:
        return known.width, None
    return known.width, tensor.shape[known.axis]
