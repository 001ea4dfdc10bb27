"""A fault compiled beside a finished build: the build is read, and nothing of it is written.

The changed sources lie in a tree of links to the build's own. Of the build's commands those are
run again, with other places, that the changed files reach: objects, archives of them, libraries
and programs. Every fault has a place of its own, so that many are compiled at once from one build.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from sparkbuild import process
from sparkbuild.faults.contract import NotPlantedError
from sparkbuild.faults.lane import Lane, patch, told, tools_environment
from sparkbuild.files import disk_full_refused

_CHANGED: Final = re.compile(r"^\+\+\+ b/(?P<file>[^\t\n]+)", re.MULTILINE)
_OBJECT: Final = re.compile(r"^(?P<output>\S.*): #deps \d+, ")
_JOINED: Final = ".a"
"""What objects are put into, and what is then linked again: a library that is loaded is not."""
_RUNPATH: Final = "-Wl,-rpath,"
_ORIGIN: Final = "$ORIGIN/"
_RUNTIME: Final = "/libcudart.so"


class _Command(msgspec.Struct, frozen=True):
    """An entry of ``compile_commands.json``."""

    command: str
    file: str
    output: str


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """A finished build, and the place where a changed one is made beside it.

    ``root`` is empty. Files are found in ``root`` under the names that they have in CMake's folder.
    """

    lane: Lane
    root: Path
    log: Path
    jobs: int = 1

    @property
    def tree(self) -> Path:
        """The source with the change."""
        return self.root / "source"

    @property
    def made(self) -> Path:
        """What CMake's folder is for the finished build."""
        return self.root / "build"

    @property
    def bin(self) -> Path:
        """The programs and libraries, changed or not."""
        return self.made / "bin"

    def moved(self, words: Sequence[str], names: Mapping[str, str]) -> list[str]:
        """A command's words with the tree in the place of the source, and files by other names."""
        source, tree = str(self.lane.source), str(self.tree)
        return [names.get(word, word).replace(source, tree) for word in words]


def build_beside(overlay: Overlay, file: Path, units: Sequence[str] = ()) -> tuple[str, ...]:
    """Apply a patch and build what it changes; names of the programs and libraries that are new.

    ``units`` are ends of the sources' names: of all that a changed header reaches these alone are
    compiled. Raises NotPlantedError where the patch does not apply, reaches nothing, does not
    compile, or changes no code. Raises DiskFullError.
    """
    with disk_full_refused(overlay.root):
        changed = _lay(overlay, file)
        commands = _commands(overlay, changed, units)
        with ThreadPoolExecutor(overlay.jobs) as pool:
            list(pool.map(lambda output: _run(overlay, output, commands[output]), commands))
        names = {one: str(overlay.made / one) for one in commands if _differs(overlay, one)}
        if not names:
            raise NotPlantedError("no object came out otherwise: it changes no code here")
        linked = _linked(overlay, names)
        _complete(overlay)
    return tuple(sorted(Path(one).name for one in linked))


def _lay(overlay: Overlay, file: Path) -> tuple[Path, ...]:
    """The tree of links with the patch in it; the files of the source that the patch changes."""
    names = tuple(match["file"] for match in _CHANGED.finditer(file.read_text()))
    source = overlay.lane.source
    for folder, _, files in os.walk(source):
        target = overlay.tree / Path(folder).relative_to(source)
        target.mkdir(parents=True)
        for one in files:
            (target / one).symlink_to(Path(folder) / one)
    for name in names:
        if (source / name).is_file():
            (overlay.tree / name).unlink()
            shutil.copy2(source / name, overlay.tree / name)
    patch(Lane(root=overlay.root, source=overlay.tree, binary=overlay.lane.binary), file,
          overlay.log)  # fmt: skip
    return tuple(source / name for name in names)


def _commands(
    overlay: Overlay, changed: Sequence[Path], units: Sequence[str]
) -> dict[str, list[str]]:
    """For each object that is to be made again, by name, its command."""
    binary = overlay.lane.binary
    reached = set(_reached(overlay, {str(file) for file in changed}))
    document = (binary / "compile_commands.json").read_bytes()
    commands: dict[str, list[str]] = {}
    for entry in msgspec.json.decode(document, type=list[_Command]):
        output = str((binary / entry.output).relative_to(binary))
        named = not units or entry.file.endswith(tuple(f"/{unit}" for unit in units))
        if output in reached and named:
            words = shlex.split(entry.command)
            made = str(overlay.made / output)
            commands[output] = overlay.moved(words, {output: made, str(binary / output): made})
    if not commands:
        raise NotPlantedError("no object of this build is made of what the patch changes")
    return commands


def _reached(overlay: Overlay, changed: set[str]) -> Iterator[str]:
    """Objects that were made of one of the files, as ninja saw it when they were compiled."""
    output = ""
    for line in _ninja(overlay, "-t", "deps").splitlines():
        match = _OBJECT.match(line)
        if match:
            output = match["output"]
        elif line.strip() in changed:
            yield output


def _run(overlay: Overlay, output: str, words: Sequence[str]) -> None:
    """Run a command of the build: programs one after another. Raises NotPlantedError."""
    (overlay.made / output).parent.mkdir(parents=True, exist_ok=True)
    binary = overlay.lane.binary
    for part in _parts(words):
        done = process.run(part, log=overlay.log, env=tools_environment(binary), cwd=binary)
        if done.returncode != 0:
            raise NotPlantedError(f"{output} is not made: {told(done.tail, 'error')}")


def _linked(overlay: Overlay, names: dict[str, str]) -> tuple[str, ...]:
    """Make again what the objects go into; files for ``bin``, by name."""
    finished: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        joined = []
        for output in _outputs(overlay, waiting):
            words = shlex.split(_ninja(overlay, "-t", "commands", "-s", output).replace("\\$", "$"))
            if not names.keys() & words:
                continue
            names[output] = str(overlay.made / output)
            _run(overlay, output, overlay.moved(words, names))
            _lend_runtime(overlay, words)
            if output.endswith(_JOINED):
                joined.append(output)
            else:
                finished[output] = None
        waiting = joined
    if not finished:
        raise NotPlantedError("what was compiled goes into no program and no library")
    return tuple(finished)


def _outputs(overlay: Overlay, inputs: Sequence[str]) -> tuple[str, ...]:
    """Everything that ninja makes of one of the inputs."""
    found: dict[str, None] = {}
    here = False
    for line in _ninja(overlay, "-t", "query", *inputs).splitlines():
        if line.startswith("    "):
            if here:
                found[line.strip()] = None
        else:
            here = line.strip() == "outputs:"
    return tuple(found)


def _parts(words: Sequence[str]) -> Iterator[list[str]]:
    """The programs of a command such as ``: && c++ ... && :``, one after another."""
    part: list[str] = []
    for word in [*words, "&&"]:
        if word != "&&":
            part.append(word)
            continue
        if part and part != [":"]:
            yield part
        part = []


def _lend_runtime(overlay: Overlay, words: Sequence[str]) -> None:
    """Put CUDA's run time where the built files look for it: in NVIDIA's wheels, beside their own.

    The folder is a link to the toolkit's that they were linked with.
    """
    folders = [Path(word).parent for word in words if word.endswith(_RUNTIME)]
    rules = [word.removeprefix(_RUNPATH) for word in words if word.startswith(_RUNPATH)]
    for entry in ":".join(rules).split(":") if folders else ():
        if entry.startswith(_ORIGIN):
            place = Path(os.path.normpath(overlay.bin / entry.removeprefix(_ORIGIN)))
            if place.is_relative_to(overlay.root) and not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(folders[0])


def _complete(overlay: Overlay) -> None:
    """Everything else of the build's programs and libraries, copied: ``$ORIGIN`` is this folder.

    A hard link would change the times by which the product knows its finished builds.
    """
    for file in overlay.lane.bin.iterdir():
        target = overlay.bin / file.name
        if not target.exists() and (file.is_file() or file.is_symlink()):
            shutil.copy2(file, target, follow_symlinks=False)


def _ninja(overlay: Overlay, *arguments: str) -> str:
    """What a tool of ninja says of the build; ``-n`` leaves its logs alone.

    Raises NotPlantedError where it says nothing.
    """
    binary = overlay.lane.binary
    argv = [str(process.python_program("ninja")), "-n", *arguments]
    done = process.capture(argv, env=tools_environment(binary), cwd=binary)
    if done.returncode != 0:
        raise NotPlantedError(f"ninja does not know this build: {told(done.stderr, 'error')}")
    return done.stdout


def _differs(overlay: Overlay, output: str) -> bool:
    """Whether what is loaded of an object is other than the build's own.

    nvcc names its temporary files in an object's symbols, so that whole files always differ. Where
    a kernel takes a function as a parameter, or a file has names of its own, nvcc puts a digest of
    paths into names, too: of such files no change is seen to be none.
    """
    made, own = overlay.made / output, overlay.lane.binary / output
    return _content(made) != _content(own)


def _content(file: Path) -> object:
    try:
        with file.open("rb") as stream:
            return [
                (section.name, section.data())
                for section in ELFFile(stream).iter_sections()
                if section["sh_flags"] & SH_FLAGS.SHF_ALLOC or section.name.startswith(".rel")
            ]
    except ELFError:
        return file.read_bytes()
