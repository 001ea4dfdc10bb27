"""Questions back to the user: which of several releases, which folder instead of this one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparkbuild.errors import ToolkitMismatchError, UsageError
from sparkbuild.manifest import Recipes, Toolchain
from sparkbuild.toolkit.book import cuda, read_book
from sparkbuild.toolkit.choice.places import root_of
from sparkbuild.toolkit.choice.releases import refused, short_name
from sparkbuild.toolkit.identity.identify import nvcc_version


def refuse_several(recipes: Recipes, asked: str, chains: Sequence[Toolchain]) -> None:
    """``13.2`` may mean 13.2.0, 13.2.1 or 13.2.2, two of which are known bad: ask which.

    Raises UsageError where ``asked`` is the beginning of more than one release.
    """
    prefix = asked.removeprefix("cuda-") + "."
    meant = [c for c in chains if c.cuda is not None and c.cuda.release.startswith(prefix)]
    if len(meant) < 2:
        return
    book = read_book(recipes)
    problems = []
    for toolchain in meant:
        bad = refused(book, toolchain)
        ids = ", ".join(advisory.id for advisory in bad)
        state = f"known bad for {' '.join(cuda(toolchain).architectures)} ({ids})" if bad else ""
        facts = [f"nvcc {cuda(toolchain).nvcc}", *([state] if state else [])]
        problems.append(f"{short_name(toolchain.name)}: {', '.join(facts)}")
    names = [short_name(toolchain.name) for toolchain in meant]
    raise UsageError(
        f"--toolkit {asked} may mean any of {len(meant)} releases",
        problems=problems,
        evidence=[recipes.root / "toolchains"],
        next_step=f"say which: --toolkit {', '.join(names[:-1])} or {names[-1]}",
    )


def nvcc_of(given: Path, root: Path) -> str:
    """The nvcc version of a root that was named. Raises ToolkitMismatchError where it has none."""
    version = nvcc_version(root)
    if version is None:
        raise _no_toolkit(given, root)
    return version


def _no_toolkit(given: Path, root: Path) -> ToolkitMismatchError:
    program = root / "bin/nvcc"
    step = "name the folder that holds bin/nvcc"
    if program.is_file():
        problem = f"{program} is no CUDA compiler: its file states no version"
        other, runs = root_of(program)
        if runs is not None:
            problem, step = f"{program} is not the compiler: it runs {runs}", f"--toolkit {other}"
    else:
        problem = f"{program} is missing"
    return ToolkitMismatchError(
        f"{given} is not a CUDA toolkit", problems=[problem], evidence=[root], next_step=step
    )
