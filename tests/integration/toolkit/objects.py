"""Real CUDA releases and real objects of b11434, for the tests that compile them.

One release is tried everywhere. The others cost about 900 MB and ten minutes each on two slow
cores: SPARKBUILD_TEST_RELEASES names them ("13.1 13.5"), or says "all".
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkbuild import process
from sparkbuild.build import surroundings
from sparkbuild.build.cache import CacheUse, serving, use
from sparkbuild.build.model import Configuration
from sparkbuild.build.tools import Tools
from sparkbuild.files import DigestCache
from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.choice.select import choose, settle
from sparkbuild.toolkit.model import Toolkit
from sparkbuild.toolkit.provision.provision import install
from sparkbuild.toolkit.provision.tree import default_root
from sparkbuild.toolkit.trial.trial import try_toolkit

GOOD = ("13.0", "13.1", "13.2.2", "13.3", "13.4", "13.5")
EVERYWHERE = "13.0"


def releases() -> list[Any]:
    asked = os.environ.get("SPARKBUILD_TEST_RELEASES", "").split()
    reason = "SPARKBUILD_TEST_RELEASES does not name this release"
    return [
        pytest.param(name, marks=[pytest.mark.skip(reason=reason)])
        if name != EVERYWHERE and name not in asked and "all" not in asked
        else name
        for name in GOOD
    ]


def provisioned(release: str, book: Book, work: Path) -> Toolkit:
    """Provisioned, chosen by its release as ``make`` does it, and tried."""
    platform: Any = current_platform()
    root = default_root(work / "toolkits", f"cuda-{release}", platform)
    install(book, f"cuda-{release}", platform, root=root, downloads=work / "downloads",
            progress=lambda *_: None)  # fmt: skip
    choice = choose(find_recipes(None), str(root))
    toolkit = settle(choice, (), DigestCache(work / "digests.json"), book=book,
                     provisioned=work / "toolkits")  # fmt: skip
    try_toolkit(toolkit, folder=work / "trials")
    return toolkit


def compile_objects(
    configuration: Configuration, tools: Tools, names: Sequence[str], log: Path
) -> tuple[dict[str, Path], CacheUse]:
    """Compile objects of ggml-cuda as the build stage would."""
    directory = Path(configuration.binary_dir)
    own = directory / surroundings.TOOLS_DIRECTORY
    env = surroundings.build_environment(own, [c.path for c in configuration.compilers])
    objects = {name: f"ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/{name}.cu.o" for name in names}
    argv = [str(tools.ninja), "-C", str(directory), "-j", "2", *objects.values()]
    with serving(tools.cache, env, log=log.with_name("cache.log")) as reached:
        done = process.run(argv, log=log, env=reached)
        assert done.returncode == 0, done.tail
        used = use(tools.cache, reached) if tools.cache else CacheUse()
    return {name: directory / path for name, path in objects.items()}, used
