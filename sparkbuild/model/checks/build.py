"""The build: does it know what the file is made of."""

from __future__ import annotations

import re

from sparkbuild.model.book import book
from sparkbuild.model.build import Library
from sparkbuild.model.checks.subject import Subject
from sparkbuild.model.finding import Finding, listed, named, not_asked, not_tried, shown
from sparkbuild.model.read import Model

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_NO_MODELS = {
    "mmproj": "name it with --mmproj, and the model with --model",
    "adapter": "name it with --lora, and the model with --model",
    "imatrix": "llama-quantize takes it (--imatrix); name the model with --model",
}
_ADAPTER = "adapter"
"""It names the architecture of the model that it is for."""
_LLAMA = "libllama"
_CLIP = "clip"
"""The architecture of vision towers; libllama has the name for llama-quantize alone."""


def architecture(subject: Subject) -> Finding:
    """The architecture is one that libllama has the name of."""
    name = subject.model.architecture
    library = subject.build.llama if subject.build else None
    expected = f"an architecture that {library.path.name if library else _LLAMA} knows"
    kind = "mmproj" if name == _CLIP else subject.model.text("general.type") or "model"
    known = name if library is None else library.knows(name)
    strange = name == _CLIP or not known
    if kind in _NO_MODELS and (strange or kind == _ADAPTER):
        found, reason = f"general.type {kind}", "llama-server loads models alone as --model"
        return _fault("architecture", "a model", found, reason, _NO_MODELS[kind])
    if strange:
        return _unknown(subject, "architecture", expected, name, library)
    if library is None:
        return not_tried("architecture", expected, named(name))
    return Finding(name="architecture", state="ok", expected=expected, found=name)


def projector(subject: Subject) -> Finding:
    """The mmproj's projector is one that libmtmd has the name of."""
    vision, build = subject.vision, subject.build
    if vision is None:
        return not_asked("projector")
    name = projector_of(vision)
    if build is None:
        return not_tried("projector", "a projector that libmtmd knows", named(name))
    library = build.mtmd
    if library is None:
        return _fault(
            "projector",
            "a build with libmtmd",
            "none",
            "this build has no vision",
            "build the variant vision",
        )
    expected = f"a projector that {library.path.name} knows"
    if library.knows(name):
        return Finding(name="projector", state="ok", expected=expected, found=name)
    return _unknown(subject, "projector", expected, name, library)


def projector_of(vision: Model | None) -> str:
    """The vision projector's name, empty where an mmproj states none, or there is no mmproj."""
    if vision is None:
        return ""
    return vision.text("clip.projector_type") or vision.text("clip.vision.projector_type") or ""


def tensor_types(subject: Subject) -> Finding:
    """Every tensor's type is one that ggml of this build has."""
    vision = subject.vision
    tensors = [*subject.model.tensors.values(), *(vision.tensors.values() if vision else ())]
    types = sorted({tensor.type for tensor in tensors})
    if subject.build is None:
        return not_tried("tensor types", "types that ggml knows", listed(types, most=40))
    library = subject.build.ggml
    if library is None:
        return Finding(
            name="tensor types",
            state="note",
            expected="types that this build's ggml knows",
            found=listed(types, most=40),
            reason="not tried: there is no libggml-base beside libllama",
        )
    strange = [kind for kind in types if not library.knows(kind)]
    if not strange:
        return Finding(
            name="tensor types",
            state="ok",
            expected=f"types that {library.path.name} knows",
            found=listed(types, most=40),
        )
    return _fault(
        "tensor types",
        f"types that {library.path.name} knows",
        listed(strange),
        "the file was quantised by a fork, or for a newer build",
        "take a file in other types, or a build that knows these",
    )


def tensor_names(subject: Subject) -> Finding:
    """Every tensor's name is one that libllama has: it refuses a file with one that it never asks.

    Names changed while architectures were reviewed, so early files hold others.
    """
    if subject.build is None:
        told = f"{len(subject.model.tensors)} names"
        return not_tried("tensor names", f"names that {_LLAMA} knows", told)
    library = subject.build.llama
    patterns = {_NUMBER.sub("%d", name): name for name in subject.model.tensors}
    strange = [name for pattern, name in patterns.items() if not _asks(library, pattern)]
    if not strange:
        return Finding(
            name="tensor names",
            state="ok",
            expected=f"names that {library.path.name} knows",
            found=f"{len(subject.model.tensors)} names",
        )
    return _fault(
        "tensor names",
        f"names that {library.path.name} knows",
        listed([shown(name) for name in strange]),
        "llama.cpp refuses a file with tensors that it never asks for: `wrong number of tensors`",
        "take a file made with a converter of this build's age",
    )


def _asks(library: Library, pattern: str) -> bool:
    """Whether libllama has a name, with ``%d`` for its numbers; it adds ``.weight`` itself."""
    return library.knows(pattern.rpartition(".")[0]) or library.knows(pattern)


def _unknown(
    subject: Subject, name: str, expected: str, found: str, library: Library | None
) -> Finding:
    twin = book().twin_of(name, found)
    names = twin.names if twin else ()
    other = next((n for n in names if n != found and library and library.knows(n)), "")
    if twin and other:
        return _fault(name, f"{expected}; it knows {other}", shown(found), twin.reason, twin.remedy)
    return _fault(
        name,
        expected,
        shown(found) if found else f"none stated in {subject.model.path.name}",
        "the file is newer than the build, or made for a fork",
        "build a newer llama.cpp, or take a file made for this one",
    )


def _fault(name: str, expected: str, found: str, reason: str, next_step: str) -> Finding:
    return Finding(
        name=name,
        state="fault",
        expected=expected,
        found=found,
        reason=reason,
        next_step=next_step,
    )
