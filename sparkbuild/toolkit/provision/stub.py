"""The driver stub: what a program is linked with where the machine has no ``libcuda.so``.

The driver brings that library, and no wheel does. The stub has its name and its functions, as
``cuda.h`` declares them; at run time the loader takes the driver's own ``libcuda.so.1``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sparkbuild.files import write_atomic
from sparkbuild.manifest import current_platform
from sparkbuild.process import Captured, capture, environment, find_program
from sparkbuild.toolkit.lock import Platform

SONAME: Final = "libcuda.so.1"
"""What the driver calls itself, on every Linux."""

STUB_ERROR: Final = 34
"""``CUDA_ERROR_STUB_LIBRARY`` of cuda.h."""

_VIEWS: Final = ((), ("-DCUDA_API_PER_THREAD_DEFAULT_STREAM",), ("-D__CUDA_API_VERSION_INTERNAL",))
"""cuda.h renames functions by macro (``_v2``, ``_ptsz``): each view shows other names."""

_HOST: Final = ("cc", "gcc", "clang")
_CROSS: Final[dict[Platform, str]] = {
    "linux-x86_64": "x86_64-linux-gnu-gcc",
    "linux-aarch64": "aarch64-linux-gnu-gcc",
}
_LINK: Final = (
    "-shared", "-fPIC", "-O1", "-g0", "-fno-ident", "-fno-asynchronous-unwind-tables",
    "-nostdlib", f"-Wl,-soname,{SONAME}", "-Wl,--build-id=none",
)  # fmt: skip
_DECLARED: Final = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(")


def driver_functions(preprocessed: Iterable[str]) -> tuple[str, ...]:
    """Names of the driver's functions in views of ``cuda.h`` as the preprocessor shows them."""
    return tuple(sorted({name for text in preprocessed for name in _DECLARED.findall(text)}))


def stub_source(functions: Iterable[str]) -> str:
    """C source of a library in which every function says that it is a stub."""
    lines = (f"int {name}(void) {{ return {STUB_ERROR}; }}\n" for name in functions)
    return "/* The driver's functions, for the linker only. */\n" + "".join(lines)


def can_make_stub(platform: Platform) -> bool:
    """True where a C compiler for ``platform`` is on ``PATH``."""
    return _compiler(platform) is not None


def make_stub(include: Path, file: Path, platform: Platform) -> str | None:
    """Build ``file`` from ``include/cuda.h`` for ``platform``; the reason where that cannot be.

    The same compiler makes the same bytes.
    """
    compiler = _compiler(platform)
    if compiler is None:
        wanted = _HOST if platform == current_platform() else (_CROSS[platform],)
        return f"no C compiler for {platform} on PATH ({' or '.join(wanted)})"
    texts = []
    for view in _VIEWS:
        answer = _ask(compiler, "-E", "-P", *view, str(include / "cuda.h"))
        if answer.returncode != 0:
            return _reason(answer)
        texts.append(answer.stdout)
    functions = driver_functions(texts)
    if "cuInit" not in functions:
        return f"{include / 'cuda.h'} declares no driver functions"
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        source, library = Path(folder) / "stub.c", Path(folder) / file.name
        source.write_text(stub_source(functions))
        answer = _ask(compiler, *_LINK, "-o", str(library), str(source))
        if answer.returncode != 0:
            return _reason(answer)
        write_atomic(file, library.read_bytes())
    return None


def _compiler(platform: Platform) -> Path | None:
    names = _HOST if platform == current_platform() else (_CROSS[platform],)
    return next((path for name in names if (path := find_program(name))), None)


def _ask(compiler: Path, *arguments: str) -> Captured:
    # Without the user's C_INCLUDE_PATH and the like: only this root's cuda.h may speak.
    return capture([str(compiler), *arguments], env=environment())


def _reason(answer: Captured) -> str:
    lines = answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"]
    return next((line for line in lines if "error" in line), f"{answer.argv[0]}: {lines[-1]}")
