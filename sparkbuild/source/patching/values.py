"""Values that model files hold, before and after patches: one that moves ruins published files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparkbuild.source.gitdoor import Repository
from sparkbuild.source.model import ValueChange
from sparkbuild.source.patching.ctext import Enumerator, defines, enumerators, tables

_NUMBERS: Final = re.compile(
    r"(?:GGML_TYPE|GGUF_TYPE|GGUF_METADATA_VALUE_TYPE|[A-Z]+_FTYPE|LLAMA_VOCAB_TYPE"
    r"|LLAMA_TOKEN_TYPE|LLAMA_POOLING_TYPE|LLAMA_EXPERT_GATING_FUNC_TYPE)_\w+"
)
"""Enumerators whose numbers GGUF files hold: types of tensors and of metadata, general.file_type,
tokenizer.ggml.token_type, pooling_type, expert_gating_func. Vocab types are compared with them:
session files and bindings hold those."""

_TABLES: Final = re.compile(r"(?:LLM|LLAMA|PROJECTOR|CLIP|GGML|GGUF|MTMD)_(?:\w+_)?NAMES")
"""Architectures, metadata keys, tensors, projectors: files hold the strings."""

_DEFINES: Final = re.compile(r"(?:KEY|TN)_\w+")
"""Keys and tensors of a vision tower's file (clip-impl.h)."""

_GROWS: Final = re.compile(r"\w+_(?:COUNT|MAX|LAST)")
"""How many there are: no file holds it, and it grows with a new value."""

_FLAG: Final = re.compile(r"\w+_GUESSED")
"""A bit beside the values; new values stay below it."""

_C: Final = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".inc")
_PYTHON: Final = "gguf/constants.py"
"""The writers' own table of the same values."""


@dataclass
class _Found:
    """What the touched files of one tree hold."""

    numbers: dict[str, tuple[str, Enumerator]] = field(default_factory=dict)
    """Enumerator to the file that has it, and its value."""
    strings: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """(table, key) to the file that has it, and its string."""


def value_changes(repository: Repository, before: str, after: str) -> tuple[ValueChange, ...]:
    """Every value that differs between two trees; ``refused`` says which may not.

    Only files that differ are read. Raises GitFailedError.
    """
    old, new = _Found(), _Found()
    for path, was, now in _differing(repository, before, after):
        for found, blob in ((old, was), (new, now)):
            if set(blob) != {"0"}:
                _read(found, path, repository.must("cat-file", "blob", blob).out)
    return (*_numbers(old, new), *_strings(old, new))


def _differing(repository: Repository, before: str, after: str) -> Iterator[tuple[str, str, str]]:
    arguments = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", before, after)
    fields = repository.must(*arguments).out.split(b"\0")
    for facts, name in zip(fields[0::2], fields[1::2], strict=False):
        path = name.decode(errors="surrogateescape")
        if path.endswith((*_C, _PYTHON)):
            _, _, was, now, _ = facts.decode().split(" ")
            yield path, was, now


def _read(found: _Found, path: str, data: bytes) -> None:
    text = data.decode(errors="replace")
    if path.endswith(_PYTHON):
        _read_python(found, path, text)
        return
    for one in enumerators(text):
        if _NUMBERS.fullmatch(one.name):
            found.numbers[one.name] = (path, one)
    for table, pairs in tables(text, _TABLES).items():
        for key, value in pairs.items():
            found.strings[table, key] = (path, value)
    for name, value in defines(text, _DEFINES).items():
        found.strings["#define", name] = (path, value)


def _read_python(found: _Found, path: str, text: str) -> None:
    """Constants of classes, and dictionaries of names; ``auto()`` never reaches a file."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            for name, value in _constants(node):
                if isinstance(value, str):
                    found.strings[node.name, name] = (path, value)
                else:
                    number = frozenset({value})
                    one = Enumerator(enum=node.name, name=f"{node.name}.{name}", value=number)
                    found.numbers[one.name] = (path, one)
        target = _target(node)
        if target.endswith("_NAMES") and isinstance(dictionary := _value(node), ast.Dict):
            for key, item in zip(dictionary.keys, dictionary.values, strict=True):
                if key is not None and isinstance(item, ast.Constant):
                    found.strings[target, ast.unparse(key)] = (path, str(item.value))


def _constants(node: ast.ClassDef) -> Iterator[tuple[str, int | str]]:
    for part in node.body:
        value = _value(part)
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
            inner = value.operand
            if isinstance(inner, ast.Constant) and type(inner.value) is int:
                yield _target(part), -inner.value
        elif isinstance(value, ast.Constant) and type(value.value) in {int, str}:
            yield _target(part), value.value  # type: ignore[misc]


def _target(node: ast.AST) -> str:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return ""


def _value(node: ast.AST) -> ast.expr | None:
    return node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None


def _numbers(old: _Found, new: _Found) -> Iterator[ValueChange]:
    for name in dict.fromkeys([*old.numbers, *new.numbers]):
        before, after = old.numbers.get(name), new.numbers.get(name)
        was = before[1].shown if before else None
        now = after[1].shown if after else None
        if was == now:
            continue
        refused = ""
        if after is None:
            refused = "files that hold it can no longer be read"
        elif before is not None:
            refused = _moved(name, before[1], after[1])
        elif not _GROWS.fullmatch(name):
            refused = _new(after[1], old.numbers)
        file = (after or before or ("", None))[0]
        yield ValueChange(name=name, file=file, before=was, after=now, refused=refused)


def _moved(name: str, before: Enumerator, after: Enumerator) -> str:
    if _GROWS.fullmatch(name) and isinstance(after.value, frozenset):
        smaller = not isinstance(before.value, frozenset) or max(after.value) < max(before.value)
        return "there are fewer than before" if smaller else ""
    return "files that hold the old value would be read as something else"


def _new(one: Enumerator, old: Mapping[str, tuple[str, Enumerator]]) -> str:
    """Why a new enumerator may not have its value, or nothing."""
    if not isinstance(one.value, frozenset):
        return "" if not old else "its value is not a number that can be compared"
    others = {
        other.name: other.value
        for _, other in old.values()
        if other.enum == one.enum
        and isinstance(other.value, frozenset)
        and not _GROWS.fullmatch(other.name)
        and not _FLAG.fullmatch(other.name)
    }
    for name, value in others.items():
        if value & one.value:
            return f"that is the value of {name}"
    top = max((max(value) for value in others.values() if value), default=None)
    if top is not None and min(one.value) < top:
        return f"not at the end (above {top}): older files may hold that number for something else"
    return ""


def _strings(old: _Found, new: _Found) -> Iterator[ValueChange]:
    kept = {(table, text) for (table, _), (_, text) in new.strings.items()}
    for place in dict.fromkeys([*old.strings, *new.strings]):
        table, key = place
        before, after = old.strings.get(place), new.strings.get(place)
        if before is not None and after is not None and before[1] == after[1]:
            continue
        refused = ""
        if before is not None and after is not None:
            refused = "files that hold the old name would no longer be known"
        elif before is not None and (table, before[1]) not in kept:
            refused = "files that hold this name would no longer be known"
        yield ValueChange(
            name=f"{table}[{key}]" if table != "#define" else key,
            file=(after or before or ("", ""))[0],
            before=before[1] if before else None,
            after=after[1] if after else None,
            refused=refused,
        )
