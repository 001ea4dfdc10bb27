"""What is wrong with a recipe file: its name, the key, the nearest key that the schema knows."""

from __future__ import annotations

import difflib
import re
import types
import typing
from pathlib import Path
from typing import Any, Final

import msgspec

from sparkbuild.errors import ManifestError

_PLACE: Final = re.compile(r" - at `(?P<place>\$[^`]*)`$")
_UNKNOWN: Final = re.compile(r"unknown field `(?P<field>[^`]*)`")


def explained(path: Path, kind: type[msgspec.Struct], text: str) -> ManifestError:
    """The refusal for a file that is not of ``kind``, from msgspec's own words."""
    place = _PLACE.search(text)
    where = place["place"].removeprefix("$").lstrip(".") if place else ""
    reason = _PLACE.sub("", text)
    unknown = _UNKNOWN.search(text)
    if unknown is None:
        key = f" `{where}`" if where else ""
        step = f"correct{key or ' it'} in {path}"
        return ManifestError(f"{path}:{key} {reason}", evidence=[path], next_step=step)
    field = unknown["field"]
    known = sorted(_fields_at(kind, where))
    near = difflib.get_close_matches(field, known, n=1)
    key = f"{where}.{field}" if where else field
    step = f"did you mean `{near[0]}`?" if near else f"known there: {', '.join(known)}"
    return ManifestError(f"{path}: unknown key `{key}`", evidence=[path], next_step=step)


def _fields_at(kind: type[msgspec.Struct], where: str) -> set[str]:
    """Names that a table knows, following a path such as ``source.origins[...]``."""
    here: list[Any] = [kind]
    for step in re.findall(r"[^.\[\]]+|\[[^\]]*\]", where):
        following: list[Any] = []
        for item in here:
            if isinstance(item, type) and issubclass(item, msgspec.Struct):
                hints = typing.get_type_hints(item, include_extras=False)
                following += _alternatives(hints[step]) if step in hints else []
            else:
                following += [a for arg in typing.get_args(item) for a in _alternatives(arg)]
        here = following
    names: set[str] = set()
    for item in here:
        if isinstance(item, type) and issubclass(item, msgspec.Struct):
            names.update(item.__struct_encode_fields__)
            tag = item.__struct_config__.tag_field
            names.update([tag] if tag else [])
    return names


def _alternatives(hint: Any) -> list[Any]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return [a for arg in typing.get_args(hint) for a in _alternatives(arg)]
    return [hint]
