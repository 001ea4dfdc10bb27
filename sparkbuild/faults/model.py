"""What a fault is, how it is planted, and what the product made of it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from sparkbuild.faults.edit import AnyEdit, AnyModelEdit, Write

Kind = Literal["toolkit", "source", "speculation", "vision", "file", "server", "pipeline"]
Reach = Literal[
    "everything", "one type", "beyond some tokens", "second request", "drafts", "pictures",
    "concurrency",
]  # fmt: skip
"""Where a fault shows: everywhere, or only under that circumstance."""
Stage = Literal[
    "toolkit", "source", "patches", "qualify", "configure", "build", "inspect", "model", "smoke",
    "package", "verify",
]  # fmt: skip
STAGES: Final[tuple[Stage, ...]] = Stage.__args__  # type: ignore[attr-defined]
"""In the order in which the product comes to them; ``model`` is ``sparkbuild inspect MODEL`` and
what smoke looks at before a start, ``verify`` is ``wheel verify``."""


class Seed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="how"):
    """How a fault is planted; each way is a class of its own."""


class SourceSeed(Seed, frozen=True, kw_only=True, tag="source"):
    """A patch of ours to the pinned source: what it changes is built again, and asked.

    ``patch`` is a file in ``patches``. ``variant`` is what is built. With ``cuda`` the build is
    one for this machine's GPU, and the fault is compiled beside it. ``units`` are then ends of the
    names of sources: of all that a changed header reaches these alone are compiled, the others
    stay as they were.
    """

    patch: str
    variant: str = "vision"
    backend: Literal["cpu", "cuda"] = "cpu"
    units: tuple[str, ...] = ()


class ToolkitSeed(Seed, frozen=True, kw_only=True, tag="toolkit"):
    """A CUDA root made of real parts, and what is built or shown with it.

    ``root`` is a folder of ``WORK/toolkits``, whose files are linked, not copied; empty where the
    release that ``toolkit`` names is not needed to refuse it. ``toolkit`` is what is asked for, by
    default the root's folder. ``foreign`` takes away the record that sparkbuild installed it.
    """

    root: str = ""
    edits: tuple[AnyEdit, ...] = ()
    toolkit: str = "{root}"
    foreign: bool = False
    ask: Literal["make", "show", "qualify"] = "make"
    architectures: tuple[str, ...] = ()
    recipes: tuple[AnyEdit, ...] = ()
    """Changes of the recipes, where others than the checkout's are to be used."""
    environment: dict[str, str] = {}
    sources: bool = False
    """The pinned sources are at hand: what the toolkit stage lets pass goes on."""


class ModelSeed(Seed, frozen=True, kw_only=True, tag="model"):
    """A canary's file changed, as if it were a user's own model, and looked at or served.

    ``file`` is below the folder of the canaries; ``mmproj`` goes along with it. ``of`` tells which
    of the two is changed. ``keep`` is the share of the file's bytes that are there, ``shards`` the
    number of files that it is split into, of which number ``without`` is not there.
    """

    file: str
    mmproj: str = ""
    of: Literal["model", "mmproj"] = "model"
    edits: tuple[AnyModelEdit, ...] = ()
    text: str = ""
    """What stands in the file in the place of a model."""
    keep: float = 1.0
    shards: int = 1
    without: int = 0
    ask: Literal["inspect", "smoke"] = "inspect"
    suite: str = ""
    """A file of the catalogue's ``suites``."""
    arguments: tuple[str, ...] = ()


class ServerSeed(Seed, frozen=True, kw_only=True, tag="server"):
    """Between the product and a healthy llama-server stands a program that breaks one thing.

    ``breaks`` is a name that ``servers/between.py`` knows, ``setting`` its number or text.
    """

    breaks: str
    setting: str | int | float = ""
    arguments: tuple[str, ...] = ("--first",)


class RecipesSeed(Seed, frozen=True, kw_only=True, tag="recipes"):
    """Recipes changed after they were checked; ``signed`` are patches whose digest is made new."""

    variant: str
    edits: tuple[AnyEdit, ...]
    signed: tuple[str, ...] = ()
    ask: Literal["patch check", "make"] = "make"


class WheelSeed(Seed, frozen=True, kw_only=True, tag="wheel"):
    """A finished wheel, or what lies beside it, changed before or after it was signed.

    ``members`` are changes of the wheel's own files, ``beside`` of the files in its folder (the
    report is ``WHEEL.report.json`` there). ``recorded``: RECORD is made to fit. ``signer``: whose
    key signs, ``team`` is trusted.
    """

    members: tuple[AnyEdit, ...] = ()
    beside: tuple[AnyEdit, ...] = ()
    recorded: bool = True
    changed: Literal["before", "after"] = "after"
    signer: Literal["team", "stranger"] = "team"
    ask: Literal["sign", "verify", "smoke"] = "verify"


class ProjectSeed(Seed, frozen=True, kw_only=True, tag="project"):
    """A small project with llama.cpp's targets (``project``), whose make is refused before smoke.

    ``edits`` change its sources, ``options`` are its recipe's CMake options. ``between`` changes
    the build folder after a first make, whose finished stages are kept. ``earlier`` are changes of
    sources that were made before, in the same work folder: its build is ``{earlier}``. ``tools``
    are programs that come first on the path.
    """

    edits: tuple[AnyEdit, ...] = ()
    options: dict[str, str] = {}
    earlier: tuple[AnyEdit, ...] = ()
    between: tuple[AnyEdit, ...] = ()
    tools: tuple[Write, ...] = ()
    arguments: tuple[str, ...] = ()


class CanarySeed(Seed, frozen=True, kw_only=True, tag="canary"):
    """The canaries' own files changed, and a healthy build asked with them.

    Paths are below the folder of the canaries.
    """

    edits: tuple[AnyEdit, ...]


class BinarySeed(Seed, frozen=True, kw_only=True, tag="binary"):
    """A library of GPU code made by a real nvcc, as somebody else's build would have it.

    ``toolkit`` is a folder of ``WORK/toolkits``. ``code`` are values of nvcc's ``-gencode``,
    ``flags`` further arguments of its.
    """

    toolkit: str
    code: tuple[str, ...]
    flags: tuple[str, ...] = ()


AnySeed = (
    SourceSeed
    | ToolkitSeed
    | ModelSeed
    | ServerSeed
    | RecipesSeed
    | WheelSeed
    | ProjectSeed
    | BinarySeed
    | CanarySeed
)


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A seeded fault, and what is expected of the product.

    ``latest`` is the stage that must have refused it, and ``says`` are words that the refusal has
    to hold, in any case of letters. ``imitates`` tells what happened to whom; ``report`` is where
    that is written, empty where no public report is known. ``fast`` ones are run in every CI.
    """

    id: str
    kind: Kind
    summary: str
    imitates: str
    report: str = ""
    reach: Reach
    subtle: bool
    latest: Stage
    says: tuple[str, ...]
    fast: bool = False
    needs: tuple[str, ...] = ()
    """What the machine must have, ``gpu`` or ``cuda-13.2.0``: without it the fault is not run, and
    that is counted."""
    seed: AnySeed


Verdict = Literal["caught", "late", "other words", "missed", "not run"]
"""``late``: a later stage refused it. ``other words``: refused, and the message does not say what
it must. ``not run``: it could not be planted, or this machine lacks what it needs."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one fault."""

    id: str
    kind: Kind
    verdict: Verdict
    stage: Stage | None
    """The stage that refused it."""
    check: str
    """Which check of that stage."""
    message: str
    """What the refusal said."""
    exit_code: int | None
    command: tuple[str, ...]
    """sparkbuild's arguments, folders of the run shortened to their names."""
    planted_seconds: float
    """To plant it, with what had to be built again."""
    seconds: float
    """Of the product's command, from its start to its end."""
    log: str
    """Everything that the command printed."""
    reason: str = ""
    """Why it was not run."""


class Clean(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the product with nothing planted; any refusal is a false alarm."""

    command: tuple[str, ...]
    exit_code: int
    seconds: float
    message: str
    log: str


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """Every fault with what became of it, and the clean runs beside them."""

    sparkbuild: str
    source: str
    """Digest of the pinned source."""
    machine: dict[str, str]
    catalogue: str
    """Digest of the faults' data."""
    started: str
    seconds: float
    found: tuple[Found, ...]
    clean: tuple[Clean, ...]

    @property
    def ok(self) -> bool:
        """Every fault that was run is caught in time with its words, and nothing clean refused."""
        return all(one.verdict in {"caught", "not run"} for one in self.found) and not any(
            one.exit_code for one in self.clean
        )
