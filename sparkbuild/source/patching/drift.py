"""Whether a change that was merged onto another base is still in the functions it was made in."""

from __future__ import annotations

import collections
import re
from typing import Final

from sparkbuild.source.gitdoor import Repository
from sparkbuild.source.patching.functions import attributes, same_function

_HUNK: Final = re.compile(
    rb"^(?:\+\+\+ b/(?P<path>[^\n]*)|@@ -\S+ \+\S+ @@ ?(?P<heading>.*))$", re.MULTILINE
)


def moved(repository: Repository, made: str, now: str) -> list[str]:
    """Functions that a commit changed on one base only: the merge put something elsewhere."""
    before, after = _functions(repository, made), _functions(repository, now)
    told = []
    for path in sorted(set(before) | set(after)):
        gone = list((before[path] - after[path]).elements())
        come = list((after[path] - before[path]).elements())
        for one in list(gone):
            other = next((two for two in come if same_function(one, two, still_there=False)), None)
            if other is not None:
                gone.remove(one)
                come.remove(other)
        if gone and come:
            told.append(f"{path}: {', '.join(come)} instead of {', '.join(gone)}")
    return told


def _functions(repository: Repository, commit: str) -> dict[str, collections.Counter[str]]:
    """For each file of a commit: how many changes in which function, as git names it."""
    languages = repository.directory / "info" / "languages"
    languages.write_text(attributes(), encoding="utf-8")
    text = repository.must(
        "-c", f"core.attributesFile={languages}", "diff-tree", "-p", "--unified=0", "--no-color",
        "--no-ext-diff", "--no-renames", f"{commit}^1", commit,
    ).out  # fmt: skip
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    path = ""
    for match in _HUNK.finditer(text):
        if match["path"] is not None:
            path = match["path"].decode(errors="replace")
        else:
            found[path][match["heading"].decode(errors="replace").strip()] += 1
    return found
