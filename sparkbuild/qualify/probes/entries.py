"""Names of real kernels in PTX: templates keep their mangled names, which depend on the compile.

A probe's ``entry`` may be a pattern with ``*``. ``template_entry`` makes one from a kernel's name
and its template arguments by the rules of the Itanium C++ ABI, up to where the parameters begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Enum:
    """An enumerator as a template argument: the enum's name and the value."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class Function:
    """A function as a template argument; what follows its name in the mangled text is not told."""

    name: str


@dataclass(frozen=True, slots=True)
class Type:
    """A type as a template argument, as the ABI writes it: ``f``, ``i``, ``6__half``."""

    mangled: str


FLOAT = Type("f")
HALF = Type("6__half")
BFLOAT16 = Type("13__nv_bfloat16")

Argument = Enum | Function | Type | bool | int


def template_entry(name: str, *arguments: Argument, scope: str = "") -> str:
    """The pattern of a kernel template's entry; without arguments, of a plain function's.

    ``scope`` is the namespace that it is in.
    """
    listed = "".join(_mangled(argument) for argument in arguments)
    nested = f"N{len(scope)}{scope}" if scope else ""
    return f"_Z{nested}{len(name)}{name}" + (f"I{listed}E*" if arguments else "*")


def find_entry(names: Iterable[str], entry: str) -> str | None:
    """The one name that ``entry`` is or matches; None where there is none, or more than one."""
    known = list(names)
    if entry in known:
        return entry
    found = [name for name in known if fnmatchcase(name, entry)]
    return found[0] if len(found) == 1 else None


def _mangled(argument: Argument) -> str:
    match argument:
        case bool():
            return f"Lb{int(argument)}E"
        case int():
            return f"Li{argument}E" if argument >= 0 else f"Lin{-argument}E"
        case Enum(name=name, value=value):
            return f"L{len(name)}{name}{value}E"
        case Type(mangled=mangled):
            return mangled
        case Function(name=name):
            return f"XadL*{len(name)}{name}*E"
