"""Where things lie below the work folder; nothing else knows these names."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import platformdirs

from sparkbuild.errors import HostError
from sparkbuild.files import disk_full_refused


class Workspace:
    """``--work DIR``, by default the user's cache folder: all of it can be made again."""

    def __init__(self, root: Path | None) -> None:
        self.root = (root or platformdirs.user_cache_path("sparkbuild")).absolute()

    def prepare(self) -> None:
        """Make the root. Raises HostError where that cannot be done."""
        make_folder(self.root, "--work")

    @property
    def store(self) -> Path:
        """The bare git repository of pinned sources."""
        return self.root / "store.git"

    @property
    def downloads(self) -> Path:
        """Archives by digest."""
        return self.root / "downloads"

    @property
    def sources(self) -> Path:
        """Materialised trees by commit."""
        return self.root / "sources"

    @property
    def digests(self) -> Path:
        """Digests of large files, by fingerprint."""
        return self.root / "digests.json"

    @property
    def toolkits(self) -> Path:
        """CUDA toolkits that ``sparkbuild toolkit install`` made, by toolchain and platform."""
        return self.root / "toolkits"

    @property
    def trials(self) -> Path:
        """What one-line programs showed of toolkits, by identity."""
        return self.root / "trials"

    @property
    def canaries(self) -> Path:
        """Derived forms, logs and audits of canaries, by canary."""
        return self.root / "canaries"

    @property
    def qualifications(self) -> Path:
        """Probe kernels, their PTX and the verdicts on compilers, by what they depend on."""
        return self.root / "qualify"

    def patches(self, variant: str) -> Path:
        """The folder in which a variant's patches are built and proved one without another."""
        return self.root / "patches" / _plain(variant)

    def run(self, variant: str, toolchain: str, architectures: tuple[str, ...]) -> Path:
        """One folder for each recipe: logs of the early stages, the last report, the lock."""
        return self.root / "runs" / _plain("-".join((variant, toolchain, *architectures)))

    def build(self, variant: str, toolchain: str, key: str) -> BuildFolder:
        """One folder for each build key."""
        return BuildFolder(self.root / "builds" / _plain(f"{variant}-{toolchain}-{key[:12]}"))


class BuildFolder:
    """Everything that one build key made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cmake = root / "cmake"
        self.install = root / "install"
        self.smoke = root / "smoke"
        self.package = root / "package"
        self.lock = root.with_name(f"{root.name}.lock")

    def record(self, stage: str) -> Path:
        """Where a stage's finished result is kept."""
        return self.root / "stages" / f"{stage}.json"

    def log(self, stage: str) -> Path:
        """A stage's full log."""
        return self.root / "logs" / f"{stage}.log"


def make_folder(folder: Path, option: str) -> None:
    """Make a folder that can be written to. Raises HostError naming the option, DiskFullError."""
    try:
        with disk_full_refused(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
    except OSError as error:
        raise HostError(
            f"cannot write to the folder {folder}: {error.strerror}",
            next_step=f"choose a folder you may write to: {option} DIR",
        ) from error


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]", "_", name)
