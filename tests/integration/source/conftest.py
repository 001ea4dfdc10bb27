"""Tiny real sources: git repositories, source archives, an index that misbehaves on demand."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import subprocess  # noqa: TID251 - tests build repositories and drive the product from outside
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.manifest import Patchset, load
from sparkbuild.source.digest import FileFacts, content_digest
from sparkbuild.source.model import PatchedTree, SourceTree
from sparkbuild.source.obtain import obtain
from sparkbuild.source.prepare import prepare

FILES: dict[str, bytes] = {
    "CMakeLists.txt": b"project(tiny)\n",
    "src/a.c": b"int a(void) { return 1; }\n" + b"".join(b"/* %d */\n" % n for n in range(30)),
    "src/deep/b.c": b"int b;\r\nint c;\r\n",
    "src/.gitattributes": b"* text eol=lf ident export-subst\n*.c filter=evil\n",
    "src/id.c": b"$Id$ $Format:%H$\n",
    "run.sh*": b"#!/bin/sh\n",
    "link@": b"src/a.c",
}
"""A tree: names that end with ``*`` are executables, with ``@`` links."""

PATHS = ("CMakeLists.txt", "src", "run.sh", "link")
EXTRA: dict[str, bytes] = {"README.md": b"not declared\n", "docs/x": b"neither\n"}


def mode_of(name: str) -> tuple[str, str]:
    """Path and git mode of a name as ``FILES`` writes it."""
    modes = {"*": "100755", "@": "120000"}
    return (name[:-1], modes[name[-1]]) if name[-1] in modes else (name, "100644")


def digest_of_tree(files: Mapping[str, bytes]) -> str:
    facts = {}
    for name, data in files.items():
        path, mode = mode_of(name)
        facts[path] = FileFacts(mode=mode, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    return content_digest(facts)


def pack(top: str, files: Mapping[str, bytes]) -> bytes:
    """A ``.tar.gz`` with ``files`` below ``top``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, data in files.items():
            path, mode = mode_of(name)
            member = tarfile.TarInfo(f"{top}/{path}")
            member.mode = 0o755 if mode == "100755" else 0o664
            if mode == "120000":
                member.type, member.linkname = tarfile.SYMTYPE, data.decode()
                out.addfile(member)
            else:
                member.size = len(data)
                out.addfile(member, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), 1, mtime=0)


class Upstream:
    """A git repository that somebody else works in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "--quiet", "--initial-branch=main", str(root), at=root.parent)

    @property
    def url(self) -> str:
        return str(self.root)

    def git(self, *arguments: str, at: Path | None = None, stdin: bytes = b"") -> str:
        names = {"GIT_AUTHOR_NAME": "n", "GIT_COMMITTER_NAME": "n", "GIT_AUTHOR_EMAIL": "e",
                 "GIT_COMMITTER_EMAIL": "e", "GIT_CONFIG_GLOBAL": os.devnull,
                 "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}  # fmt: skip
        done = subprocess.run(
            ["git", *arguments], cwd=at or self.root, env=names, input=stdin,
            capture_output=True, check=True,
        )  # fmt: skip
        return done.stdout.decode().strip()

    def commit(self, files: Mapping[str, bytes], message: str = "change") -> str:
        """Commit ``files``, byte for byte, on top of what is there."""
        for name, data in files.items():  # not from a work tree: attributes would change them
            path, mode = mode_of(name)
            blob = self.git("hash-object", "-w", "--stdin", "--no-filters", stdin=data)
            self.git("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    def tag(self, name: str) -> None:
        self.git("tag", "--force", "--annotate", "--message", name, name)

    def mirror(self, place: Path) -> Path:
        self.git("clone", "--quiet", "--mirror", str(self.root), str(place))
        return place


@dataclass
class Watcher:
    notes: list[str] = field(default_factory=list)
    seen: list[tuple[int, int, str]] = field(default_factory=list)

    def progress(self, done: int, total: int, text: str) -> None:
        self.seen.append((done, total, text))

    def note(self, text: str) -> None:
        self.notes.append(text)


class Lab:
    """One user's machine: a work folder, a recipe, and what the product makes of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.manifest = root / "recipes" / "tiny" / "patchset.toml"
        self.manifest.parent.mkdir(parents=True)
        self.watcher = Watcher()

    @property
    def store(self) -> Path:
        return self.work / "store.git"

    @property
    def downloads(self) -> Path:
        return self.work / "downloads"

    @property
    def sources(self) -> Path:
        return self.work / "sources"

    def write(
        self,
        *origins: Mapping[str, object],
        digest: str | None = None,
        paths: Sequence[str] = PATHS,
        patches: Mapping[str, bytes] | None = None,
        **changes: str,
    ) -> None:
        """Write the recipe (and its patches, each under the digest that it has)."""
        text = 'schema = 1\nname = "tiny"\nsummary = "s"\n'
        text += f"[source]\npaths = {json.dumps(list(paths))}\n"
        text += f'digest = "{digest}"\n' if digest else ""
        text += "".join(_table("source.origins", origin) for origin in origins)
        text += '[build]\ntargets = ["t"]\n[smoke]\nsuite = "basic"\n'
        for name, data in (patches or {}).items():
            (self.manifest.parent / name).write_bytes(data)
            sha256 = changes.get(name, hashlib.sha256(data).hexdigest())
            text += _table("patches", {"file": name, "sha256": sha256, "reason": "r"})
        self.manifest.write_text(text)

    @property
    def patchset(self) -> Patchset:
        return load(self.manifest, Patchset)

    def obtain(self) -> SourceTree:
        return obtain(self.patchset.source, self.manifest, self, self.watcher)

    def prepare(self) -> PatchedTree:
        return prepare(self.obtain(), self.patchset, self.manifest, self, self.watcher)

    def driver(self, before: str = "") -> list[str]:
        """A command that obtains and prepares in a process of its own; ``before`` runs first."""
        script = self.root / "driver.py"
        script.write_text(_DRIVER.replace("# BEFORE", before))
        return [sys.executable, str(script), str(self.manifest), str(self.work)]


_DRIVER = """
import json, pathlib, sys, types
from sparkbuild.errors import SparkbuildError
from sparkbuild.manifest import Patchset, load
from sparkbuild.source.obtain import obtain
from sparkbuild.source.prepare import prepare

manifest, work = map(pathlib.Path, sys.argv[1:])
places = types.SimpleNamespace(
    store=work / "store.git", downloads=work / "downloads", sources=work / "sources"
)
notes = []
watcher = types.SimpleNamespace(progress=lambda *_: None, note=notes.append)
patchset = load(manifest, Patchset)
# BEFORE
try:
    tree = obtain(patchset.source, manifest, places, watcher)
    done = prepare(tree, patchset, manifest, places, watcher)
    answer = {"origin": tree.origin, "commit": done.commit, "warnings": tree.warnings}
except SparkbuildError as error:
    answer = {"error": type(error).__name__, "message": error.message,
              "problems": error.problems, "next_step": error.next_step}
answer["loaded"] = [n for n in ("git", "httpx", "requests", "pypi_simple") if n in sys.modules]
answer["notes"] = notes
print(json.dumps(answer))
"""


def _table(name: str, values: Mapping[str, object]) -> str:
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
    return f"[[{name}]]\n" + "".join(lines)


@dataclass
class Index:
    """A package index and file server on this machine. ``plan`` is how it answers, in order.

    ``whole``, ``cut:N`` (N bytes, then the line breaks), ``wrong``, ``longer``, ``gone`` (404),
    ``busy`` (503), ``deaf`` (ranges ignored), ``changed`` (a range of another file refused),
    ``off`` (416). When the plan is through, answers are whole.
    """

    file: str
    data: bytes
    sha256: str
    url: str = ""
    advertised: str | None = None
    plan: list[str] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    conditions: list[str | None] = field(default_factory=list)

    def origin(self, **changes: object) -> dict[str, object]:
        return {"kind": "sdist", "project": "tiny", "version": "1", "file": self.file,
                "sha256": self.sha256, "size": len(self.data), "subdirectory": "tree",
                **changes}  # fmt: skip


def _handler(index: Index) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/simple/tiny/":
                digest = index.advertised or index.sha256
                link = f'<a href="/files/{index.file}#sha256={digest}">{index.file}</a>'
                self._send(200, f"<html><body>{link}</body></html>".encode(), "text/html")
            elif self.path == f"/files/{index.file}":
                self._file()
            else:
                self._send(404, b"no", "text/plain")

        def _send(self, status: int, data: bytes, kind: str, **headers: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(data)

        def _file(self) -> None:
            wanted = self.headers.get("Range")
            index.ranges.append(wanted)
            index.conditions.append(self.headers.get("If-Range"))
            step = index.plan.pop(0) if index.plan else "whole"
            failures = {"gone": 404, "busy": 503, "off": 416}
            if step in failures:
                self._send(failures[step], b"", "text/plain")
                return
            data = {"wrong": bytes(len(index.data)), "longer": index.data + b"more"}.get(
                step, index.data
            )
            start = 0
            if wanted and step not in {"deaf", "changed"}:
                start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])  # type: ignore[index]
            self.send_response(206 if start else 200)
            self.send_header("ETag", '"one"')
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            if step.startswith("cut:"):
                self.wfile.write(data[start : start + int(step[4:])])
                self.close_connection = True
                return
            self.wfile.write(data[start:])

    return Handler


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "upstream")


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Index]]:
    """Start an index that serves one archive, and point the product at it."""
    servers: list[ThreadingHTTPServer] = []

    def start(files: Mapping[str, bytes], *, top: str = "tiny-1/tree", **known: Any) -> Index:
        data = known.pop("data", None) or pack(top, files)
        index = Index("tiny-1.tar.gz", data, hashlib.sha256(data).hexdigest(), **known)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(index))
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index.url = f"http://127.0.0.1:{server.server_port}/simple/"
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        return index

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def namespace_refused(*options: str) -> str | None:
    """Why this machine refuses a namespace, or None."""
    try:
        done = subprocess.run(["unshare", *options, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return "unshare is not installed"
    text = done.stderr.decode().strip()
    return f"unshare {' '.join(options)}: {text}" if done.returncode else None


@pytest.fixture
def offline() -> list[str]:
    """The beginning of a command line that runs the rest without any network."""
    reason = namespace_refused("-rn")
    if reason:
        pytest.skip(reason)
    return ["unshare", "-rn"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Callable[[Path, int], list[str]]:
    """The beginning of a command line that runs the rest with a folder on a disk of N KiB."""
    reason = namespace_refused("-rm")
    if reason:
        pytest.skip(reason)

    def start(place: Path, size: int) -> list[str]:
        place.mkdir(parents=True, exist_ok=True)
        mount = f'mount -t tmpfs -o size={size}k tmpfs {place} && exec "$@"'
        return ["unshare", "-rm", "sh", "-c", mount, "sh"]

    return start


@pytest.fixture
def tree() -> Callable[..., str]:
    """The content digest that a tree should have."""
    return digest_of_tree


@pytest.fixture(scope="session")
def tiny() -> dict[str, bytes]:
    return dict(FILES)
