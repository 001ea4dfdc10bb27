"""What a proof of a patch has in hand: a build, its sources, canaries, servers, and a verdict.

A proof is a Python program beside the manifest that calls ``proof`` with its arguments. These are
three folders: the programs of a build, the sources that they were made of, and one that it may
write to, which is kept for the next proof. It looks at one thing after another (``Bench.check``),
and its exit status is 0 where all are well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.canary.catalogue import DATA, Canary, verify
from sparkbuild.canary.forms import EXACT, Files, Place, files, programs
from sparkbuild.canary.run import PATIENCE
from sparkbuild.canary.suite import Suite, load_pictures, load_suite
from sparkbuild.errors import BuildError, SmokeError, SparkbuildError, UsageError
from sparkbuild.files import exclusive
from sparkbuild.llama.log import Context, LogReport, scan
from sparkbuild.llama.server import running
from sparkbuild.patch_talk import Talk
from sparkbuild.toolkit.host import find_host_compiler

_PARTS: Final = ("llama-common", "llama", "ggml", "ggml-base")
"""Libraries of a build that a program may use."""
_HEADERS: Final = ("include", "ggml/include", "src", "common", "vendor")
_BATCH: Final = 512
_EXACT: Final = ("--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off")
"""Nothing is rounded, so that an answer does not depend on what else is in a batch."""
_WAIT: Final = 600.0
"""Seconds for another proof that makes the same file."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model that is served: its files, and what a canary's suite asks of it."""

    name: str
    model: Path
    vision: Path | None
    suite: Suite
    pictures: dict[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Drafts:
    """How drafts are made: by what, how many at most, with which model where it takes one."""

    kind: str = "draft-mtp"
    most: int = 3
    model: Path | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """llama-server's arguments."""
        exact = ("--spec-draft-type-k", "f32", "--spec-draft-type-v", "f32")
        model = ("--spec-draft-model", str(self.model)) if self.model else ()
        return ("--spec-type", self.kind, "--spec-draft-n-max", str(self.most), *exact, *model)


def proof(argv: Sequence[str], body: Callable[[Bench], None]) -> int:
    """Run a proof's body on the build that its program was started with; the exit status.

    A server that does not come up, or a program that does not compile, is a failed proof.
    """
    try:
        bench = Bench.of(argv)
    except UsageError as error:
        sys.stdout.write(f"{error.message}\n")
        return error.exit_code
    try:
        body(bench)
    except SparkbuildError as error:
        bench.tell(error.detail or "")
        bench.check(
            "the whole proof", well=False, found="; ".join([error.message, *error.problems])
        )
    return bench.end()


class Bench:
    """One proof on one build."""

    def __init__(self, build: Path, source: Path, folder: Path, *, name: str) -> None:
        self.build = build
        self.source = source
        self.folder = folder
        self.name = name
        self.programs = programs(build)
        self._wrong: list[str] = []
        self._looked = 0

    @classmethod
    def of(cls, argv: Sequence[str]) -> Bench:
        """The bench of a program's arguments. Raises UsageError where these are not folders."""
        places = [Path(text).absolute() for text in argv[1:]]
        if len(places) != 3 or not all(place.is_dir() for place in places[:2]):
            raise UsageError(
                f"{argv[0]} takes three folders: a build's programs, its sources, one to write to",
                next_step="sparkbuild patch drop-check --variant NAME runs every proof",
            )
        places[2].mkdir(parents=True, exist_ok=True)
        return cls(places[0], places[1], places[2], name=Path(argv[0]).stem)

    def check(self, what: str, *, well: bool, found: object) -> bool:
        """Tell what was looked at and found; where it is not well, the proof fails."""
        self._looked += 1
        if not well:
            self._wrong.append(what)
        self.tell(f"{'well ' if well else 'WRONG'} {what}: {found}")
        return well

    def tell(self, text: str) -> None:
        """One line for whoever reads the log."""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    @property
    def well(self) -> bool:
        """Whether nothing that was looked at so far is wrong."""
        return not self._wrong

    def end(self) -> int:
        """The exit status, after a closing line; nothing looked at is nothing proved."""
        count = f"{self._looked - len(self._wrong)} of {self._looked} well"
        self.tell(f"{self.name}: {count}" + (f"; not {self._wrong[0]}" if self._wrong else ""))
        return 1 if self._wrong or not self._looked else 0

    def canary(self, name: str) -> Subject:
        """A canary in float32, its vision tower too: made once, kept in the folder."""
        entry = verify(DATA, names=(name,)).canary(name)
        suite_folder = DATA / entry.suite
        suite, _ = load_suite(suite_folder)
        found = self._files(entry)
        return Subject(
            name=name,
            model=found.model.path,
            vision=found.vision,
            suite=suite,
            pictures=load_pictures(suite_folder, suite),
        )

    def _files(self, entry: Canary) -> Files:
        place = Place(root=self.folder / "canaries" / entry.name)
        place.root.mkdir(parents=True, exist_ok=True)
        return files(DATA, entry, EXACT, programs=self.programs, place=place, log=place.log("form"))

    @property
    def saved(self) -> Path:
        """Where servers keep the slots that they are told to save."""
        return self.folder / "served" / "slots"

    @contextmanager
    def serving(
        self,
        subject: Subject,
        *,
        slots: int = 1,
        context: int = 0,
        drafts: Drafts | None = None,
        flags: Sequence[str] = (),
        log: str,
    ) -> Iterator[Talk]:
        """A llama-server of the build, in float32 throughout and on one thread.

        ``context`` is that of one slot, by default what the suite's longest conversation needs.
        Afterwards the talk holds what the log tells. Raises SmokeError where the server does not
        come up.
        """
        self.saved.mkdir(parents=True, exist_ok=True)
        place = self.folder / "served"
        path = place / f"{self.name}-{_plain(log)}.log"
        length = _rounded(context or subject.suite.context)
        argv = [
            *(("--mmproj", str(subject.vision)) if subject.vision else ()),
            *("--ctx-size", str(slots * length), "--parallel", str(slots)),
            *("--batch-size", str(_BATCH), "--ubatch-size", str(_BATCH)),
            *("--threads", "1", "--threads-batch", "1", "--n-gpu-layers", "0", "--fit", "off"),
            *("--slot-save-path", str(self.saved), "--cache-ram", "0"),
            *("--offline", "--no-webui", "--log-colors", "off"),
            *_EXACT,
            *(drafts.flags if drafts else ()),
            *flags,
        ]
        with running(
            self.programs.server,
            argv,
            model=subject.model,
            scratch=place / "home",
            log=path,
            limits=PATIENCE,
        ) as server:
            talk = Talk(server.client, subject.pictures)
            yield talk
            talk.died = server.died()
        talk.log = scan(path, context=_context(subject, drafts))

    def quiet(self, what: str, talk: Talk) -> None:
        """Look at what a server left: it lived to its end, and its log tells of no fault."""
        log = talk.log or LogReport(lines=0)
        faults = "; ".join(str(one) for one in log.of("fault"))
        found = talk.died or faults or f"no fault in {log.lines} lines"
        self.check(f"{what}, the log", well=log.passed and not talk.died, found=found)

    def refused(self, subject: Subject, *, log: str, drafts: Drafts | None = None) -> str:
        """What a server says that must not come up; empty where it does."""
        try:
            with self.serving(subject, log=log, drafts=drafts):
                return ""
        except SmokeError as error:
            lines = [line for line in (error.detail or "").splitlines() if " E " in line]
            return "; ".join(line.partition(" E ")[2] for line in lines) or error.message

    def compiled(self, program: Path, *more: Path) -> Path:
        """A C++ program against the build's own headers and libraries; made anew for every build.

        Raises BuildError where it does not compile.
        """
        place = self.folder / "programs"
        place.mkdir(parents=True, exist_ok=True)
        out, log = place / program.stem, place / f"{program.stem}.log"
        log.unlink(missing_ok=True)
        libraries = [f"-l:{self._library(part)}" for part in _PARTS]
        argv = [
            find_host_compiler().cxx, "-std=c++17", "-O1", "-pthread",
            *(f"-I{self.source / folder}" for folder in _HEADERS),
            str(program), *map(str, more), "-o", str(out), f"-L{self.build}", *libraries,
            f"-Wl,-rpath,{self.build}", f"-Wl,-rpath-link,{self.build}",
        ]  # fmt: skip
        with exclusive(place / "lock", what=program.name, wait=_WAIT):
            done = process.run(argv, log=log, env=process.environment(), cwd=place)
        if done.returncode:
            raise BuildError(
                f"{program.name} does not compile against this build",
                evidence=[log],
                detail=done.tail,
                next_step=f"read the first error in {log}",
            )
        return out

    def ran(self, program: Path, *arguments: str | Path) -> tuple[int, str]:
        """Run a compiled program; its exit status and last lines."""
        argv = [str(program), *map(str, arguments)]
        log = program.with_name(f"{program.name}-run.log")
        log.unlink(missing_ok=True)
        done = process.run(argv, log=log, env=process.environment(), cwd=self.folder)
        return done.returncode, done.tail

    def _library(self, part: str) -> str:
        found = sorted(self.build.glob(f"lib{part}.so*"), key=lambda path: len(path.name))
        if not found:
            raise UsageError(f"{self.build} has no lib{part}.so", next_step="build it shared")
        return found[0].name


def _context(subject: Subject, drafts: Drafts | None) -> frozenset[Context]:
    found: list[Context] = ["pictures"] if subject.vision else []
    return frozenset([*found, "drafts"] if drafts else found)


def _plain(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._" else "-" for char in name)


def _rounded(length: int) -> int:
    """Up to what llama.cpp pads a context to."""
    return -(-length // 256) * 256
