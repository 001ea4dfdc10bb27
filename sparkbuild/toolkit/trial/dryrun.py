"""``nvcc --dryrun``: every program and folder that a compile would use, before any of it runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.toolkit.identity import versions

_MARK: Final = "#$ "
_SETTING: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)")
_VARIABLE: Final = re.compile(r"\$(\w+)|\$\{(\w+)\}")
_PATH: Final = re.compile(r"(?:^|[=,:;])(?:-I|-L|-isystem)?(/[^=,:;]*)")
_TOOLS: Final = frozenset({"cat", "cp", "echo", "ln", "mv", "rm", "sed", "touch"})
"""Of the system; nvcc itself removes and copies with them."""
_SEARCH: Final = frozenset({"PATH"})
"""Settings that list more than this compile uses; what is found on them is judged instead."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One step: its program and arguments, nvcc's own settings put in."""

    program: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What nvcc would do: its settings (``CICC_PATH``, ``INCLUDES`` ...) and steps in order."""

    settings: dict[str, str]
    commands: tuple[Command, ...]

    def program(self, command: Command) -> str | None:
        """The file that a step starts, on nvcc's own search path; None where there is none."""
        return shutil.which(command.program, path=self.settings.get("PATH", os.defpath))

    def programs(self) -> tuple[str, ...]:
        """Every file that a step starts, each once."""
        found = [place for command in self.commands if (place := self.program(command))]
        return tuple(dict.fromkeys(found))

    def paths(self) -> Iterator[tuple[str, str]]:
        """Every absolute path in settings and arguments, with where it stands."""
        for name, value in self.settings.items():
            if name not in _SEARCH:
                for word in _words(value):
                    yield from ((name, path) for path in absolute_paths(word))
        for command in self.commands:
            name = Path(command.program).name
            for word in command.arguments:
                yield from ((name, path) for path in absolute_paths(word))


def read_plan(text: str) -> Plan:
    """Read the dry run's lines, which begin with ``#$``; lines that are no command are left out."""
    settings: dict[str, str] = {}
    commands: list[Command] = []
    for line in text.splitlines():
        if not line.startswith(_MARK):
            continue
        body = line.removeprefix(_MARK).strip()
        setting = _SETTING.fullmatch(body)
        if setting is not None:
            settings[setting["name"]] = _expanded(setting["value"], settings)
            continue
        words = [_expanded(word, settings) for word in _words(body)]
        if words:
            commands.append(Command(program=words[0], arguments=tuple(words[1:])))
    return Plan(settings=settings, commands=tuple(commands))


def absolute_paths(word: str) -> list[str]:
    """Absolute paths in one argument: alone, after ``=``, in lists, behind ``-I`` and ``-L``."""
    return _PATH.findall(word)


def foreign(plan: Plan, *, root: str, host: str, own: Collection[str] = ()) -> list[str]:
    """Programs and paths of a plan that are neither the root's nor the host compiler's, each once.

    ``own`` are further folders that may be named: the one that the compile works in. Links are
    resolved, so that a folder of the root that leads elsewhere is found. A foreign program is told
    with the version in it, and not started.
    """
    compiler, top = os.path.realpath(host), os.path.realpath(root)
    tops = [top, *map(os.path.realpath, own)]
    problems: dict[str, str] = {}
    for command in plan.commands:
        if command.program in _TOOLS:
            continue
        place = plan.program(command)
        if place is None:
            text = f"nvcc would run {command.program}, which is neither in {root} nor the system's"
            problems.setdefault(command.program, text)
            continue
        real = os.path.realpath(place)
        if real != compiler and not _below(real, [top]):
            text = f"nvcc would run {real}{_stated(real)}, which is not below {root}"
            problems.setdefault(real, text)
    for where, path in plan.paths():
        real = os.path.realpath(path)
        if real != compiler and not _below(real, tops):
            problems.setdefault(real, f"nvcc would use {real} ({where}), which is not below {root}")
    return list(problems.values())


def _stated(program: str) -> str:
    try:
        with open(program, "rb") as file:  # noqa: PTH123 - by name, as the rest
            read = lambda start, size: os.pread(file.fileno(), size, start)  # noqa: E731
            found, _ = versions.embedded(read, os.path.getsize(program))  # noqa: PTH202
    except OSError:
        return ""
    return f" ({' and '.join(sorted(found))})" if found else ""


def _below(real: str, tops: list[str]) -> bool:
    return any(real == top or real.startswith(f"{top}/") for top in tops)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an unbalanced quote: the words still tell
        return text.split()


def _expanded(text: str, settings: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda match: settings.get(match[1] or match[2], match[0]), text)
