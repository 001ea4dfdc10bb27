"""Operating system, shell, container, clock: from files, the C library and the environment."""

from __future__ import annotations

import codecs
import ctypes
import locale
import os
import platform
import re
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from sparkbuild.doctor.captured import UNLIMITED, Clock, Limit, System
from sparkbuild.doctor.read.reader import Reader, variable

_VARIABLES: Final = (
    "CUDACXX", "CUDAHOSTCXX", "CUDA_DISABLE_PTX_JIT", "CUDA_HOME", "CUDA_MODULE_LOADING",
    "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDAToolkit_ROOT", "GGML_CUDA_ENABLE_UNIFIED_MEMORY",
    "GGML_CUDA_NO_PINNED", "LD_LIBRARY_PATH", "LD_PRELOAD", "LLAMA_ARG_LOAD_MODE",
)  # fmt: skip
_LIMITS: Final[dict[Literal["memlock", "nofile", "nproc"], int]] = {
    "memlock": resource.RLIMIT_MEMLOCK,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
}
_CONTAINERS: Final = {".dockerenv": "docker", "run/.containerenv": "podman"}
"""Files that container engines leave at the root."""
_CGROUP: Final = re.compile(r"/(?P<kind>docker|kubepods|containerd|lxc|libpod|podman)\b")
_OPENSSL: Final = re.compile(r'(?m)^#\s*define\s+OPENSSL_VERSION_STR\s+"(?P<version>[^"]+)"')
_OPENSSL_TEXT: Final = re.compile(
    r'(?m)^#\s*define\s+OPENSSL_VERSION_TEXT\s+"OpenSSL (?P<version>\S+)'
)
"""Version 1.1 has no string of the number alone."""
_OPENSSL_HEADERS: Final = ("usr/include/openssl/opensslv.h", "usr/local/include/openssl/opensslv.h")
_STA_UNSYNC: Final = 0x0040
_TIME_ERROR: Final = 5
"""From linux/timex.h."""


class _Timex(ctypes.Structure):
    """``struct timex`` of linux/timex.h as far as it is read; the rest is room for the kernel."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def read_system(reader: Reader, environment: Mapping[str, str] = os.environ) -> System:
    """The system below the reader's root; kernel, limits and clock are this process's own."""
    release = reader.text("etc/os-release", "system.os")
    name, encoding = read_locale(environment)
    return System(
        os=variable(release, "PRETTY_NAME") or variable(release, "NAME"),
        kernel=platform.release(),
        architecture=platform.machine(),
        product=_line(reader.text("sys/class/dmi/id/product_name", "system.product")),
        dgx=_dgx(reader),
        tegra=(reader.root / "etc/nv_tegra_release").exists(),
        glibc=_glibc(reader),
        locale=name,
        encoding=encoding,
        container=read_container(reader, environment),
        memory_limit=reader.number("sys/fs/cgroup/memory.max")
        or _old_limit(reader.number("sys/fs/cgroup/memory/memory.limit_in_bytes")),
        process_limit=reader.number("sys/fs/cgroup/pids.max"),
        limits={name: _limit(number) for name, number in _LIMITS.items()},
        clock=_clock(reader),
        openssl=read_openssl(reader),
        variables={name: environment[name] for name in _VARIABLES if environment.get(name)},
    )


def _old_limit(limit: int | None) -> int | None:
    """Version 1 of control groups writes a huge number for none."""
    return limit if limit is not None and limit < 1 << 60 else None


def _line(text: str | None) -> str | None:
    return text.strip() or None if text is not None else None


def _dgx(reader: Reader) -> str | None:
    """Name and version; the file has a serial number too, which is not read out."""
    text = reader.text("etc/dgx-release")
    name = variable(text, "DGX_PRETTY_NAME") or variable(text, "DGX_NAME")
    version = variable(text, "DGX_OTA_VERSION") or variable(text, "DGX_SWBUILD_VERSION")
    if name is None:
        return None
    return f"{name}, DGX OS {version}" if version else name


def _glibc(reader: Reader) -> str | None:
    try:
        told = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        told = ""
    found = re.search(r"\d+\.\d+", told)
    if found is None:
        reader.lack("system.glibc", "the C library is not glibc")
    return found[0] if found else None


def read_locale(environment: Mapping[str, str]) -> tuple[str, str]:
    """The locale's name as the environment has it, and its encoding.

    The process's own locale is looked at: what the C library does not have is ``unknown``.
    """
    name = next(
        (environment[key] for key in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(key)), ""
    )
    kept = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, name or "C")
        encoding = codecs.lookup(locale.nl_langinfo(locale.CODESET)).name
    except (locale.Error, LookupError):
        encoding = "unknown"
    finally:
        locale.setlocale(locale.LC_CTYPE, kept)
    return name, encoding


def read_container(reader: Reader, environment: Mapping[str, str]) -> str | None:
    """Which kind of container this is in, None outside."""
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    named = environment.get("container")
    if named:
        return named
    for file, kind in _CONTAINERS.items():
        if (reader.root / file).exists():
            return kind
    found = _CGROUP.search(reader.text("proc/1/cgroup") or "")
    return found["kind"] if found else None


def _limit(number: int) -> Limit:
    soft, hard = resource.getrlimit(number)
    return Limit(
        soft=UNLIMITED if soft == resource.RLIM_INFINITY else soft,
        hard=UNLIMITED if hard == resource.RLIM_INFINITY else hard,
    )


def _clock(reader: Reader) -> Clock | None:
    """Asked of the kernel; nothing is set, and no network is used."""
    state = _Timex()
    try:
        result = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state))
    except (OSError, AttributeError) as error:
        reader.lack("system.clock", error)
        return None
    if result < 0:
        reader.lack("system.clock", os.strerror(ctypes.get_errno()))
        return None
    good = result != _TIME_ERROR and not state.status & _STA_UNSYNC
    return Clock(synchronised=good, error=state.maxerror / 1e6)


def read_openssl(reader: Reader) -> str | None:
    """Version of the development headers, None where there are none."""
    multiarch = sorted(reader.root.glob("usr/include/*-linux-gnu/openssl/opensslv.h"))
    inside = [str(Path(path).relative_to(reader.root)) for path in multiarch]
    for path in (*_OPENSSL_HEADERS, *inside):
        text = reader.text(path)
        if text is not None:
            found = _OPENSSL.search(text) or _OPENSSL_TEXT.search(text)
            return found["version"] if found else "unknown version"
    return None
