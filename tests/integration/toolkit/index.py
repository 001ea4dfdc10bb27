"""A package index on this machine with a CUDA release in small, which misbehaves on demand."""

from __future__ import annotations

import base64
import hashlib
import io
import random
import re
import threading
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PLATFORMS = ("x86_64", "aarch64")
NOISE = random.Random(3).randbytes(1_500_000)  # noqa: S311 - only hard to pack

PARTS: Mapping[str, Mapping[str, bytes]] = {
    "nvidia-cuda-nvcc": {
        "bin/nvcc": b"nvcc", "bin/nvcc.profile": b"TOP = .\n", "bin/cudafe++": b"cudafe",
        "bin/ptxas": b"ptxas", "bin/fatbinary": b"fatbinary", "bin/nvlink": b"nvlink",
    },
    "nvidia-nvvm": {"nvvm/bin/cicc": b"cicc", "nvvm/libdevice/libdevice.10.bc": b"BC"},
    "nvidia-cuda-crt": {"include/crt/host_config.h": b"// crt\n"},
    "nvidia-cuda-runtime": {
        "include/cuda_runtime_api.h": b"#define CUDART_VERSION 13000\n",
        "include/cuda.h": b"typedef int CUresult;\nCUresult cuInit(unsigned);\n",
        "lib/libcudart.so.13": b"cudart", "lib/libcudart_static.a": b"!<arch>\n",
    },
    "nvidia-cuda-cccl": {"include/cccl/cub/version.cuh": b"// cub\n"},
    "nvidia-cublas": {"include/cublas_v2.h": b"// blas\n", "lib/libcublas.so.13": b"blas",
                      "lib/libcublasLt.so.13": NOISE},
}  # fmt: skip
"""A release: files below ``nvidia/cu13/`` by project; cuBLAS is the large one."""


def pack(project: str, version: str, files: Mapping[str, bytes], requires: str = "") -> bytes:
    """A wheel; ``requires`` are more lines of METADATA."""
    info = f"{project.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.4\nName: {project}\nVersion: {version}\n"
    metadata += f"License-Expression: LicenseRef-Tiny\n{requires}"
    members = {
        **{f"nvidia/cu13/{path}": data for path, data in files.items()},
        f"{info}/METADATA": metadata.encode(),
    }
    rows = []
    for member, data in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{member},sha256={digest},{len(data)}\n")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for member, data in {**members, f"{info}/RECORD": "".join(rows).encode()}.items():
            entry = zipfile.ZipInfo(member)
            entry.external_attr = (0o100755 if "/bin/" in member else 0o100644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 1)
    return buffer.getvalue()


@dataclass
class Index:
    """Files by project and name. ``plan`` is how a file's next requests are answered, in order.

    ``cut:N`` (N bytes, then the line breaks), ``hang:N`` (N bytes, then
    nothing until ``released``), ``wrong``
    (other bytes), ``deaf`` (ranges ignored), ``busy`` (503). After that answers are right.
    """

    url: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    plan: dict[str, list[str]] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)
    deaf: bool = False
    released: threading.Event = field(default_factory=threading.Event)

    def add(self, project: str, file: str, data: bytes) -> None:
        self.files.setdefault(project, {})[file] = data

    def add_release(
        self, meta: str, nvcc: str, *, changes: Mapping[str, str] | None = None
    ) -> None:
        """A metapackage and its wheels for every platform; ``changes`` are other versions."""
        versions = {project: (changes or {}).get(project, nvcc) for project in PARTS}
        requires = "Provides-Extra: all\n" + "".join(
            f"Requires-Dist: {project}=={version}.*; sys_platform == 'linux' and extra == 'all'\n"
            for project, version in versions.items()
        )
        data = pack("cuda-toolkit", meta, {}, requires)
        self.add("cuda-toolkit", f"cuda_toolkit-{meta}-py2.py3-none-any.whl", data)
        for project, version in versions.items():
            for machine in PLATFORMS:
                mark = b" of " + f"{version} {machine}".encode()
                files = {path: data + mark for path, data in PARTS[project].items()
                         if not path.endswith(".h")} | {path: data for path, data
                         in PARTS[project].items() if path.endswith(".h")}  # fmt: skip
                name = f"{project.replace('-', '_')}-{version}-py3-none-manylinux_2_27_{machine}"
                self.add(project, f"{name}.whl", pack(project, version, files))
            self.add(project, f"{project.replace('-', '_')}-{version}-py3-none-win_amd64.whl", b"")

    def wheel(self, project: str, machine: str = "x86_64") -> str:
        """The name of the newest wheel of a project."""
        return [name for name in self.files[project] if name.endswith(f"{machine}.whl")][-1]

    def ranges(self, file: str) -> list[str | None]:
        return [wanted for name, wanted in self.asked if name == file]


def handler(index: Index) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - one small method each
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            kind, _, name = self.path.strip("/").partition("/")
            if kind == "simple" and name in index.files:
                self._page(index.files[name])
            elif kind == "files":
                project, _, file = name.partition("/")
                self._file(file, index.files[project][file])
            else:
                self._head(404, 0)

        def _page(self, files: Mapping[str, bytes]) -> None:
            project = self.path.strip("/").rpartition("/")[2]
            links = "".join(
                f'<a href="/files/{project}/{name}#sha256={hashlib.sha256(data).hexdigest()}">'
                f"{name}</a>\n"
                for name, data in files.items()
            )
            page = f"<html><body>{links}</body></html>".encode()
            self._head(200, len(page), [("Content-Type", "text/html")])
            self.wfile.write(page)

        def _head(self, status: int, size: int, headers: Iterable[tuple[str, str]] = ()) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(size))
            self.end_headers()

        def _file(self, name: str, data: bytes) -> None:
            wanted = self.headers.get("Range")
            index.asked.append((name, wanted))
            steps = index.plan.get(name, [])
            step, _, number = (steps.pop(0) if steps else "").partition(":")
            if step == "busy":
                self._head(503, 0)
                return
            data = bytes(len(data)) if step == "wrong" else data
            start, end = 0, len(data)
            match = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted or "")
            if match and not (index.deaf or step == "deaf"):
                first, last = match.groups()
                start = int(first) if first else max(0, end - int(last))
                end = min(end, int(last) + 1) if first and last else end
                place = f"bytes {start}-{end - 1}/{len(data)}"
                self._head(206, end - start, [("ETag", '"one"'), ("Content-Range", place)])
            else:
                self._head(200, end, [("ETag", '"one"')])
            index.sent[name] = index.sent.get(name, 0) + end - start
            if step in {"cut", "hang"}:
                self.wfile.write(data[start : start + int(number)])
                self.wfile.flush()
                if step == "hang":
                    index.released.wait(120)
                self.close_connection = True
                return
            self.wfile.write(data[start:end])

    return Handler


def start(index: Index) -> ThreadingHTTPServer:
    """Serve ``index`` until the server is shut down."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that was killed is no news."""

    server = Server(("127.0.0.1", 0), handler(index))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    index.url = f"http://127.0.0.1:{server.server_port}/simple/"
    return server


TOOLCHAIN = """schema = 1
name = "{name}"
label = "cu130"
summary = "s"

[cuda]
release = "13.0"
nvcc = "{nvcc}"
cudart = "13.0"
architectures = ["121a"]
"""


def write_recipes(folder: Path, **toolchains: str) -> Path:
    """A recipes folder with toolchains by name, each with the nvcc of its value."""
    (folder / "toolchains" / "locks").mkdir(parents=True)
    (folder / "patchsets").mkdir()
    for name, nvcc in toolchains.items():
        text = TOOLCHAIN.format(name=name, nvcc=nvcc)
        (folder / "toolchains" / f"{name}.toml").write_text(text)
    return folder
