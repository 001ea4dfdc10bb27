"""Whether the binaries call themselves what was pinned."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.smoke.compare import Comparisons
from sparkbuild.smoke.context import Context

# b11434: "version: 0.6.0-dev (build 11434, commit 0123456789ab)"; older: "version: 9000 (0123456)".
_VERSION: Final = re.compile(
    r"^version: (?:\S+ \(build (?P<build>\d+), commit (?P<commit>[^)\s]+)\)"
    r"|(?P<old_build>\d+) \((?P<old_commit>[^)\s]+)\))\s*$",
    re.MULTILINE,
)


def parse_version(text: str) -> tuple[int, str] | None:
    """Build number and commit that ``llama-server --version`` prints; None where it does not."""
    match = _VERSION.search(text)
    if match is None:
        return None
    build, commit = match["build"] or match["old_build"], match["commit"] or match["old_commit"]
    return int(build), commit


def version_printed(context: Context, compare: Comparisons) -> str:
    """``llama-server --version`` names the pin."""
    compare.expected = _pin(context)
    done = process.capture([str(context.executable), "--version"], cwd=Path("/"))
    text = f"{done.stdout}\n{done.stderr}"
    compare.equal("exit status of --version", 0, done.returncode)
    found = parse_version(text)
    if found is None:
        compare.holds(f"no version in {text.strip()[:300]!r}", condition=False)
        return ""
    _compare_pin(context, compare, *found)
    return f"build {found[0]}, commit {found[1]}"


def version_served(context: Context, compare: Comparisons) -> str:
    """``/props`` of the running server names the pin too: it is the same binary."""
    compare.expected = _pin(context)
    info = context.api.props().build_info
    match = re.fullmatch(r"b(\d+)-(\S+)", info)
    if match is None:
        compare.holds(f"build_info {info!r} has no build and commit", condition=False)
        return ""
    _compare_pin(context, compare, int(match[1]), match[2])
    return f"build_info {info}"


def _pin(context: Context) -> str:
    build = "any build number" if context.build is None else f"build {context.build}"
    return f"{build}, commit {context.identity}"


def _compare_pin(context: Context, compare: Comparisons, build: int, commit: str) -> None:
    if context.build is not None:
        compare.equal("build", context.build, build)
    compare.equal("commit", context.identity, commit)
