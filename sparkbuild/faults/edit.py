"""Changes of files and of models, as data."""

from __future__ import annotations

from typing import Literal

import msgspec


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """One change below a folder. ``path`` is relative to it and may be a pattern (``lib/*.so``).

    Texts may hold ``{scratch}``, ``{work}``, ``{toolkits}``, ``{platform}``, ``{catalogue}``,
    ``{source}``, ``{python}`` and what a planter adds.
    """

    path: str


class Remove(Edit, frozen=True, kw_only=True, tag="remove"):
    """Files, links or folders are gone."""


class Write(Edit, frozen=True, kw_only=True, tag="write"):
    """A file has this text, whether it was there or not."""

    text: str
    executable: bool = False


class Replace(Edit, frozen=True, kw_only=True, tag="replace"):
    """``old`` stands in a file, ``count`` times, and becomes ``new``; UTF-8 in binary files too."""

    old: str
    new: str
    count: int = 1


class Cut(Edit, frozen=True, kw_only=True, tag="cut"):
    """A file ends early: only this share of its bytes is there."""

    keep: float


class Flip(Edit, frozen=True, kw_only=True, tag="flip"):
    """One bit of a file is another, at this share of its length."""

    at: float


class Take(Edit, frozen=True, kw_only=True, tag="take"):
    """A file or folder is that of another place (``{toolkits}/...``), file names in it as there."""

    source: str


class Link(Edit, frozen=True, kw_only=True, tag="link"):
    """A symbolic link to ``to`` takes the place of what was there."""

    to: str


class Assign(Edit, frozen=True, kw_only=True, tag="assign"):
    """A value of a JSON document is another; ``at`` are the keys and indices that lead to it."""

    at: tuple[str | int, ...]
    value: str | int | float | bool | None


AnyEdit = Remove | Write | Replace | Cut | Flip | Take | Link | Assign


class _ModelEdit(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"
):
    """One change of a model file."""


class Key(_ModelEdit, frozen=True, kw_only=True, tag="key"):
    """A model's metadata key has this value, of the type that it had or that ``value`` suggests."""

    key: str
    value: str | int | float | bool | tuple[int | float, ...]


class Lose(_ModelEdit, frozen=True, kw_only=True, tag="lose"):
    """A model lacks keys or tensors whose names fit the pattern."""

    what: Literal["key", "tensor"]
    name: str


class Rename(_ModelEdit, frozen=True, kw_only=True, tag="rename"):
    """``old`` in the names of a model's keys or tensors is ``new``."""

    what: Literal["key", "tensor"]
    old: str
    new: str


class Weights(_ModelEdit, frozen=True, kw_only=True, tag="weights"):
    """Tensors whose names fit the pattern are changed.

    ``rolled``: by an eighth of their rows. ``negated``: float tensors with the other sign.
    ``labelled``: the same bytes under the name of another type, ``type``. ``requantised``: rounded
    to ``type`` and named so. ``halved``: half of the rows are gone.
    """

    name: str
    how: Literal["rolled", "negated", "labelled", "requantised", "halved"]
    type: str = ""


class Entry(_ModelEdit, frozen=True, kw_only=True, tag="entry"):
    """In an array of texts the entry ``old`` is ``new``."""

    key: str
    old: str
    new: str


AnyModelEdit = Key | Lose | Rename | Weights | Entry
