"""Where a toolkit is tried: the source, the environment, the commands, and the two refusals."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.errors import HostError, SparkbuildError, ToolkitMismatchError
from sparkbuild.toolkit.model import Toolkit
from sparkbuild.toolkit.trial import failure, preprocessed

NAME: Final = "trial"
"""Of the source, and of everything that is made from it."""

SOURCE_DATE_EPOCH: Final = "315532800"
"""As the build sets it."""

_SYSTEM_PATH: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""As the build sets it."""

SOURCE: Final = f"""\
#include <cuda_runtime.h>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cublas_v2.h>
#include <dlfcn.h>
#include <cstdio>
#ifdef __clang__
#define TRIAL_CLANG 1
#define TRIAL_MAJOR __clang_major__
#define TRIAL_MINOR __clang_minor__
#define TRIAL_PATCH __clang_patchlevel__
#else
#define TRIAL_CLANG 0
#define TRIAL_MAJOR __GNUC__
#define TRIAL_MINOR __GNUC_MINOR__
#define TRIAL_PATCH __GNUC_PATCHLEVEL__
#endif
static const int {preprocessed.TABLE}[] = {{{", ".join(preprocessed.FIELDS)}}};
__global__ void one(float * x) {{ *x = 1.0f; }}
int main() {{
  int runtime = 0, driver = 0;
  Dl_info found;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) return 2;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (!dladdr(dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion"), &found)) return 3;
  std::printf("runtime %d driver %d compiled %d library %s\\n", runtime, driver,
              {preprocessed.TABLE}[0], found.dli_fname);
}}
"""
"""A kernel and what every CUDA source of ggml includes, so that all these headers are parsed; its
table is filled by the preprocessor, and its program says which libcudart it met."""

_PLAIN: Final = "#include <cmath>\n#include <cstdlib>\n#include <utility>\nint main() {}\n"
"""What a host compiler must be able to compile and link by itself."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where and how an attempt is made."""

    toolkit: Toolkit
    root: Path
    folder: Path
    keep_open: tuple[int, ...]

    @property
    def log(self) -> Path:
        """Every command with its output."""
        return self.folder / "trial.log"

    @property
    def libraries(self) -> Path:
        """The folder with ``libcudart.so``: ``lib64``, or where the identity found it."""
        known = [Path(part.path).parent for part in self.toolkit.parts if part.name == "libcudart"]
        places = [self.root / "lib64", *known]
        return next((place for place in places if (place / "libcudart.so").exists()), places[0])

    @property
    def nvcc(self) -> list[str]:
        """The compiler with the build's host compiler, standard and targets."""
        codes = [f"arch=compute_{name},code=sm_{name}" for name in self.toolkit.architectures]
        targets = [word for code in codes for word in ("-gencode", code)]
        host = self.toolkit.host.cxx
        return [str(self.root / "bin/nvcc"), "-ccbin", host, "-std=c++17", *targets, "--keep"]

    def environment(self) -> dict[str, str]:
        """The build's: made from nothing, the compilers' folders first."""
        beside = [str(Path(path).parent) for path in (self.toolkit.host.c, self.toolkit.host.cxx)]
        search = dict.fromkeys([*beside, *_SYSTEM_PATH])
        extra = {"HOME": str(self.folder), "PATH": os.pathsep.join(search)}
        return process.environment(extra={**extra, "SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH})

    def run(self, argv: Sequence[str]) -> tuple[int, list[str]]:
        """Run in the folder, into the log; the exit status and all lines."""
        lines: list[str] = []
        done = process.run(
            argv,
            log=self.log,
            env=self.environment(),
            cwd=self.folder,
            on_line=lines.append,
            keep_open=self.keep_open,
        )
        return done.returncode, lines


def failed(bench: Bench, what: str, status: int, lines: Sequence[str]) -> SparkbuildError:
    """The refusal for a step that failed, laid at the door where it belongs."""
    toolkit = bench.toolkit
    error = failure.first_error(lines)
    tail = "\n".join(lines[-process.TAIL_LINES :])
    glibc = os.confstr("CS_GNU_LIBC_VERSION") or "an unknown C library"
    host = f"{toolkit.host.identification} ({toolkit.host.cxx})"
    if not failure.is_hosts(lines, str(bench.root)):
        alone = _host_alone(bench)
        if alone is None:
            problem = f"nvcc cannot {what} (status {status}): {error}"
            return mismatch(bench, [problem], detail=tail)
        error = alone
    return HostError(
        f"{host} with {glibc} does not go with {toolkit.toolchain}",
        problems=[f"first error: {error}", f"host compiler: {host}", f"C library: {glibc}"],
        evidence=_kept(bench, ()),
        next_step="put another host compiler first on PATH (an older or newer g++), or choose a "
        "newer CUDA release; `sparkbuild toolkit list` shows those of this machine",
        detail=tail,
    )


def _host_alone(bench: Bench) -> str | None:
    """The host compiler's own first error on plain C++, None where it has none."""
    (bench.folder / "plain.cpp").write_text(_PLAIN)
    status, lines = bench.run([bench.toolkit.host.cxx, "plain.cpp", "-o", "plain"])
    return failure.first_error(lines) if status != 0 else None


def mismatch(bench: Bench, problems: Sequence[str], detail: str = "") -> ToolkitMismatchError:
    """The refusal of a toolkit whose witnesses contradict it, with the files that prove it."""
    versions = [part.version for part in bench.toolkit.parts if part.name == "nvcc"]
    stated = " ".join(versions) or bench.toolkit.toolchain
    return ToolkitMismatchError(
        f"{bench.root} does not compile as the CUDA {stated} that it says it is",
        problems=problems,
        evidence=_kept(bench, ("*.ptx", "*.cubin")),
        next_step="install that release anew, or name another root: --toolkit /path/to/cuda",
        detail=detail,
    )


def _kept(bench: Bench, patterns: Sequence[str]) -> list[Path]:
    made = [path for pattern in patterns for path in sorted(bench.folder.glob(pattern))]
    return [bench.log, *made] if bench.log.exists() else made
