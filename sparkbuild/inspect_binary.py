"""``sparkbuild inspect`` of programs, libraries and wheels: what they are, and GB10's verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import structs, to_builtins

from sparkbuild.build.look import Looked, look, look_at
from sparkbuild.build.model import Look
from sparkbuild.errors import BinaryError, PackageError, SparkbuildError
from sparkbuild.inspect_seen import Seen
from sparkbuild.inspect_toolkit import code_compiler, compilers, wheel_compiler
from sparkbuild.manifest import Recipes
from sparkbuild.model.book import book
from sparkbuild.model.finding import Finding, State, named
from sparkbuild.model.miscompiled import NAME, Compiler
from sparkbuild.package.look import elf_members
from sparkbuild.package.look import look as look_at_wheel
from sparkbuild.report.looks import binary_view, wheel_view

_BAD: Final = ("warning", "fault")
_NO_GPU: Final = "GPU code"


def see_binary(path: Path, recipes: Recipes) -> Seen:
    """A program, a library or an object file. Raises BinaryError where it cannot be read."""
    looked = look(path, known_architectures())
    found = _told(looked, path.name, recipes)
    code = _exit_code(found.findings, BinaryError)
    return Seen(
        document={**_head("binary", code), **to_builtins(found)},
        view=binary_view(found, code),
        exit_code=code,
        files=(str(path),),
    )


def see_wheel(path: Path, recipes: Recipes) -> Seen:
    """A wheel, ours or another's. Raises PackageError where it cannot be read."""
    found = look_at_wheel(path)
    findings = list(found.findings)
    looks = _looks(path, findings)
    binaries = [_told(looked, looked.look.path, recipes) for looked in looks]
    findings += _of_binaries(binaries)
    if found.made is not None and (compiler := wheel_compiler(found.made, path.name, recipes)):
        # What the wheel says of its patches decides; its code alone cannot tell of them.
        findings = [one for one in findings if not one.name.endswith(NAME)]
        findings.append(known_defects(compiler))
    whole = structs.replace(found, binaries=tuple(binaries), findings=tuple(findings))
    code = _exit_code(whole.findings, PackageError)
    return Seen(
        document={**_head("wheel", code), **to_builtins(whole)},
        view=wheel_view(whole, code),
        exit_code=code,
        files=(str(path),),
    )


def known_architectures() -> tuple[str, ...]:
    """Names of model architectures: those of the package gguf, and those of sparkbuild's book."""
    from gguf import MODEL_ARCH_NAMES  # noqa: PLC0415 - brings numpy, which models need not

    ours = (entry.name for entry in book().architecture)
    return tuple({*MODEL_ARCH_NAMES.values(), *ours})


def known_defects(compiler: Compiler) -> Finding:
    """What is known against a compiler, where no model is named that its defects could strike."""
    open_ = [one for one in compiler.defects if one.tensor_types and not one.lifted]
    lifted = [one for one in compiler.defects if one.lifted]
    state: State = "warning" if open_ else "ok"
    kinds = sorted({kind for one in open_ for kind in one.tensor_types})
    reasons = [f"{one.id}: {one.part} {one.version} {one.effect}" for one in open_]
    reasons += [f"{one.id} is worked around: {one.lifted}" for one in lifted]
    return Finding(
        name=NAME,
        state=state,
        expected="a compiler that breaks no tensor type",
        found=f"{compiler.version}" + (f", which breaks {', '.join(kinds)}" if kinds else ""),
        reason="; ".join(reasons),
        next_step="sparkbuild inspect MODEL --build DIR tells whether a model has such tensors, "
        "and --variant which patches work around it"
        if open_
        else "",
    )


def _told(looked: Looked, name: str, recipes: Recipes) -> Look:
    """A look with the compilers that its GPU code names, and what is known against them."""
    found = looked.look
    compiler = code_compiler(looked, name, recipes)
    more = () if compiler is None else (known_defects(compiler),)
    return structs.replace(found, compilers=compilers(looked), findings=(*found.findings, *more))


def _looks(path: Path, findings: list[Finding]) -> Iterator[Looked]:
    """A look at each ELF file in a wheel; one that cannot be read is a finding."""
    names = known_architectures()
    for member, file in elf_members(path):
        size = file.seek(0, 2)
        try:
            yield look_at(file.fileno(), size, Path(member), names)
        except BinaryError as error:
            findings.append(
                Finding(
                    name=f"{named(Path(member).name)}: ELF",
                    state="fault",
                    expected="a file that can be read",
                    found="; ".join(error.problems) or error.message,
                    reason="it begins as a program or a library and is none",
                    next_step=error.next_step,
                )
            )


def _of_binaries(binaries: Sequence[Look]) -> Iterator[Finding]:
    """What is wrong with any of them, and whether there is GPU code for GB10 at all."""
    for one in binaries:
        for finding in one.findings:
            if finding.state in _BAD:
                name = f"{named(one.path.rpartition('/')[2])}: {finding.name}"
                yield structs.replace(finding, name=name)
    holders = [one for one in binaries if one.gpu]
    for one in holders:
        verdict = next(each for each in one.findings if each.name == _NO_GPU)
        if verdict.state == "ok":
            yield verdict
    machines = sorted({one.machine for one in binaries})
    if binaries and not holders:
        verdict = next(each for each in binaries[0].findings if each.name == _NO_GPU)
        yield structs.replace(verdict, found=f"none in its {len(binaries)} ELF files")
    for machine in machines:
        holder = next(one for one in binaries if one.machine == machine)
        yield next(each for each in holder.findings if each.name == "machine")


def _exit_code(findings: Sequence[Finding], kind: type[SparkbuildError]) -> int:
    return kind.exit_code if any(one.state == "fault" for one in findings) else 0


def _head(kind: str, code: int) -> dict[str, Any]:
    return {"kind": kind, "result": "failed" if code else "passed", "exit_code": code}
