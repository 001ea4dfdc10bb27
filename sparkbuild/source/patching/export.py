"""A commit as a patch file that is the same text whoever makes it, when and with which git."""

from __future__ import annotations

import email.utils
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sparkbuild.source.gitdoor import Repository
from sparkbuild.source.objects import AUTHOR
from sparkbuild.source.patching.functions import attributes
from sparkbuild.source.patching.mail import Mail
from sparkbuild.source.patching.place import occurrences
from sparkbuild.source.patching.unified import DiffError, parse, split

DIFF: Final = (
    "diff-tree", "-p", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv",
    "--no-renames", "--no-relative", "--src-prefix=a/", "--dst-prefix=b/",
    "--inter-hunk-context=0", "--diff-algorithm=myers", "--indent-heuristic",
)  # fmt: skip
"""Everything that could make the same change another text is set; less the lines of context."""

_CONTEXT: Final = (3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50)
"""Lines of context, until each hunk fits at one place of its file only."""

_FIRST_LINE: Final = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"
"""What begins a mail of git format-patch, with no commit: it would be another on every base."""

_UNDATED: Final = AUTHOR.rpartition("> ")[2]


def patch_text(repository: Repository, commit: str) -> bytes:
    """The mail that a commit is carried as. Raises GitFailedError."""
    mail = repository.must(
        "show", "--no-patch", "--format=email", "--encode-email-headers", "--no-notes", commit
    ).out
    head = mail.partition(b"\n")[2].strip(b"\n")
    return b"".join([_FIRST_LINE, head, b"\n---\n", *_diffs(repository, commit)])


def _diffs(repository: Repository, commit: str) -> Iterator[bytes]:
    parent = f"{commit}^1"
    names = repository.must(
        "diff-tree", "-r", "-z", "--name-only", "--no-renames", parent, commit
    ).out.split(b"\0")[:-1]
    with tempfile.TemporaryDirectory(prefix="sparkbuild-") as folder:
        languages = Path(folder) / "attributes"
        languages.write_text(attributes(), encoding="utf-8")
        for name in names:
            path = name.decode(errors="surrogateescape")
            yield _diff(repository, parent, commit, path, languages)


def _diff(repository: Repository, parent: str, commit: str, path: str, languages: Path) -> bytes:
    """One file's diff, with so many lines of context that no hunk fits at a second place."""
    text, first = b"", b""
    for lines in _CONTEXT:
        text = repository.must(
            "-c", f"core.attributesFile={languages}", *DIFF, f"--unified={lines}", parent, commit,
            "--", path,
        ).out  # fmt: skip
        first = first or text
        if not _ambiguous(repository, parent, text):
            return text
    return first  # no context tells: the tree id still does


def _ambiguous(repository: Repository, parent: str, text: bytes) -> bool:
    try:
        changes = parse(text)
    except DiffError:
        return False
    for change in changes:
        if change.old is None or not change.hunks:
            continue
        data = repository.must("cat-file", "blob", f"{parent}:{change.old}").out
        content = split(data)
        if any(len(occurrences(content, hunk.old)) != 1 for hunk in change.hunks):
            return True
    return False


def make_patch_commit(repository: Repository, tree: str, parent: str, mail: Mail) -> str:
    """A commit with a patch's author, date and message. Raises GitFailedError."""
    text = commit_text(tree, [parent], author_of(mail), mail.message)
    with tempfile.TemporaryFile() as stream:
        stream.write(text)
        stream.seek(0)
        return repository.must("hash-object", "-t", "commit", "-w", "--stdin", stdin=stream).text


def commit_text(tree: str, parents: Sequence[str], author: str, message: str) -> bytes:
    """A commit object; who commits is always the same."""
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents),
             f"author {author}", f"committer {AUTHOR}", "", message]  # fmt: skip
    return "\n".join(lines).encode()


def author_of(mail: Mail) -> str:
    """``Name <mail> seconds zone`` as a commit has it; a mail without a date has a fixed one."""
    name, address = email.utils.parseaddr(mail.author)
    who = f"{name or 'sparkbuild'} <{address or 'sparkbuild@localhost'}>"
    try:
        date = email.utils.parsedate_to_datetime(mail.date)
    except (TypeError, ValueError):
        return f"{who} {_UNDATED}"
    if date.tzinfo is None:
        return f"{who} {_UNDATED}"
    return f"{who} {int(date.timestamp())} {date.strftime('%z')}"
