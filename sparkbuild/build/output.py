"""What CMake says while it configures: text in, frozen facts out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_HEAD: Final = re.compile(
    r"CMake (?P<kind>(?:Internal |Deprecation )?(?:Error|Warning))"
    r"(?: \((?P<tag>[\w-]+)\))?"
    r"(?: at (?P<file>.+?):(?P<line>\d+)(?: \([^()]*\))?| in (?P<where>[^:]+))?"
    r":\s*(?P<rest>.*)"
)
_IDENTIFICATION: Final = re.compile(
    r"-- The (?P<language>\w+) compiler identification is (?P<id>\S+)(?: (?P<version>[\d.]+))?"
    r"(?: with host compiler (?P<host>\S+ \S+))?\s*"
)
_TOOLKIT: Final = re.compile(
    r"-- Found CUDAToolkit: (?P<include>.+?) \(found (?:suitable )?version \"(?P<version>[^\"]+)\""
)
_USING: Final = re.compile(r"-- Using CMAKE_CUDA_ARCHITECTURES=(?P<list>\S*)")
_REPLACING: Final = re.compile(
    r"-- Replacing (?P<old>\S+) in CMAKE_CUDA_ARCHITECTURES with (?P<new>\S+)"
)
"""Not ``..._NATIVE``: what the machine's own GPU would get is no fact of this build."""
_OPENSSL_USED: Final = re.compile(r"-- OpenSSL found: (?P<version>\S+)")
_OPENSSL_MISSING: Final = re.compile(r"OpenSSL not found|Could NOT find OpenSSL|LibSSL not found")
_UNUSED: Final = re.compile(
    r"Manually-specified variables were not used by the project:(?P<names>.*)", re.DOTALL
)
_DEPRECATED: Final = re.compile(
    r"\b(?P<name>[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+) (?:env var )?is deprecated\b"
)
_CALL_STACK: Final = "Call Stack (most recent call first):"


@dataclass(frozen=True, kw_only=True)
class Identified:
    """One ``The ... compiler identification is ...`` line."""

    language: str
    identification: str
    """``GNU 12.2.0``; ``unknown`` and CMake's ``GNU`` of assemblers come without a version."""
    host: str | None = None
    """nvcc's host compiler, which CMake before 4 does not print."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """An error or a warning: its place (``CMakeLists.txt:178``, may be empty) and its text."""

    kind: str
    place: str
    text: str

    @property
    def summary(self) -> str:
        """The text on one line, with the place in front where there is one."""
        flat = " ".join(self.text.split())
        return f"{self.place}: {flat}" if self.place else flat


@dataclass(frozen=True, kw_only=True)
class Prose:
    """All that is read from one configure run. An absent fact is None or empty, never a guess."""

    compilers: tuple[Identified, ...]
    toolkit_include: tuple[str, ...]
    toolkit_version: str | None
    architectures: tuple[str, ...] | None
    """``Using CMAKE_CUDA_ARCHITECTURES=``, which old sources and CPU builds do not print."""
    replaced: tuple[tuple[str, str], ...]
    unused: tuple[str, ...]
    deprecated: tuple[Message, ...]
    """Options that the sources call deprecated; CMake's own policies are warnings."""
    openssl: str | None
    """The version that will be used."""
    openssl_missing: bool
    """True where CMake looked for OpenSSL and said that there is none."""
    errors: tuple[Message, ...]
    warnings: tuple[Message, ...]

    def compiler(self, language: str) -> Identified | None:
        """The last word on a language, or None."""
        found = [c for c in self.compilers if c.language == language]
        return found[-1] if found else None


def parse_output(text: str) -> Prose:
    """Read CMake's standard output and error, mixed as a terminal shows them."""
    lines = [_ANSI.sub("", line).rstrip() for line in text.splitlines()]
    toolkit = _last(_TOOLKIT, lines)
    using = _last(_USING, lines)
    openssl = _last(_OPENSSL_USED, lines)
    messages = list(_messages(lines))
    unused = [name for message in messages for name in _unused(message)]
    deprecated = tuple(m for m in messages if _is_deprecation(m))
    plain = [m for m in messages if m not in deprecated and not list(_unused(m))]
    return Prose(
        compilers=tuple(_identified(match) for match in _all(_IDENTIFICATION, lines)),
        toolkit_include=tuple(toolkit["include"].split(";")) if toolkit else (),
        toolkit_version=toolkit["version"] if toolkit else None,
        architectures=_split(using["list"]) if using else None,
        replaced=tuple((m["old"], m["new"]) for m in _all(_REPLACING, lines)),
        unused=tuple(dict.fromkeys(unused)),
        deprecated=deprecated,
        openssl=openssl["version"] if openssl else None,
        openssl_missing=any(_OPENSSL_MISSING.search(line) for line in lines),
        errors=tuple(m for m in messages if m.kind.endswith("Error")),
        warnings=tuple(m for m in plain if m.kind.endswith("Warning")),
    )


def deprecated_names(message: Message) -> tuple[str, ...]:
    """The options that a deprecation message is about."""
    return tuple(match["name"] for match in _DEPRECATED.finditer(" ".join(message.text.split())))


def _messages(lines: Iterable[str]) -> Iterator[Message]:
    """Blocks that begin with ``CMake Error`` or ``CMake Warning`` and go on indented."""
    head: re.Match[str] | None = None
    body: list[str] = []
    for line in [*lines, "end"]:
        if head is not None and (not line or line.startswith("  ")):
            body.append(line.strip())
            continue
        if head is not None:
            yield _message(head, body)
        head = None if line.startswith(_CALL_STACK) else _HEAD.match(line)
        body = [head["rest"]] if head and head["rest"] else []


def _message(head: re.Match[str], body: list[str]) -> Message:
    place = f"{head['file']}:{head['line']}" if head["file"] else (head["where"] or "")
    return Message(kind=head["kind"], place=place, text="\n".join(body).strip())


def _is_deprecation(message: Message) -> bool:
    return message.kind.endswith("Warning") and bool(deprecated_names(message))


def _unused(message: Message) -> list[str]:
    match = _UNUSED.search(message.text)
    return match["names"].split() if match else []


def _identified(match: re.Match[str]) -> Identified:
    words = [match["id"], match["version"]]
    return Identified(
        language=match["language"],
        identification=" ".join(word for word in words if word),
        host=match["host"],
    )


def _all(pattern: re.Pattern[str], lines: Iterable[str]) -> list[re.Match[str]]:
    return [match for line in lines if (match := pattern.match(line))]


def _last(pattern: re.Pattern[str], lines: Iterable[str]) -> re.Match[str] | None:
    found = _all(pattern, lines)
    return found[-1] if found else None


def _split(text: str) -> tuple[str, ...]:
    return tuple(entry for entry in text.split(";") if entry)
