"""Whether a wheel holds exactly what was tested: every mismatch, before anyone installs it."""

from __future__ import annotations

import configparser
import email.parser
import email.policy
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from sparkbuild.files import sha256_bytes
from sparkbuild.package import archive, identity
from sparkbuild.package.project import Plan

_RUNNABLE: Final = {b"\x7fELF": "an ELF file", b"#!": "a script"}
"""What a kernel would start: the first bytes of a file, whatever its mode says."""


@dataclass(frozen=True, kw_only=True)
class _Member:
    """One file of a wheel: size, digest, whether it would be made executable, first bytes."""

    size: int
    digest: bytes
    executable: bool
    head: bytes


def mismatches(wheel: Path, plan: Plan) -> list[str]:
    """Every way in which the wheel differs from its plan, one line each; empty where none.

    Checks the archive's member names, RECORD against each member, the binaries' digests and
    modes, that nothing else could be executed, metadata, tag, entry points and licence texts.
    """
    try:
        with zipfile.ZipFile(wheel) as opened:
            unsafe = list(unsafe_names(opened))
            if unsafe:
                return unsafe
            members = {member.filename: _read(opened, member) for member in opened.infolist()}
            texts = {
                name: opened.read(name).decode("utf-8", errors="replace")
                for name in members
                if PurePosixPath(name).parent.name.endswith(".dist-info")
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        return [f"the wheel cannot be read: {error}"]
    return [
        *_name_problems(wheel, plan),
        *_record_problems(members, texts, plan),
        *_binary_problems(members, plan),
        *_metadata_problems(texts, plan),
        *_text_problems(members, plan),
    ]


def _read(opened: zipfile.ZipFile, member: zipfile.ZipInfo) -> _Member:
    digest, head = archive.digest_of_member(opened, member)
    return _Member(
        size=member.file_size,
        digest=digest,
        executable=archive.executable_bit(member),
        head=head,
    )


def unsafe_names(opened: zipfile.ZipFile, *, folders: bool = False) -> Iterator[str]:
    """Members that would be written elsewhere, or over one another.

    With ``folders`` a folder may be a member of its own, as some programs pack them.
    """
    names = opened.namelist()
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{name!r} is in the wheel {count} times"
        parts = (name.removesuffix("/") if folders else name).split("/")
        if name.startswith("/") or "\\" in name or ".." in parts or re.match(r"[A-Za-z]:", name):
            yield f"{name!r} would be written outside the place of installation"
        elif "" in parts or "." in parts or not name.isprintable():
            yield f"{name!r} is no plain file path"


def _name_problems(wheel: Path, plan: Plan) -> Iterator[str]:
    try:
        name, version, _, tags = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        yield f"no installer accepts this wheel's file name: {error}"
        return
    found = (name, str(version), sorted(map(str, tags)))
    expected = (canonicalize_name(identity.DISTRIBUTION), plan.version, [plan.tag])
    if found != expected:
        yield f"file name: expected {_shown(expected)}, found {_shown(found)}"


def _record_problems(
    members: Mapping[str, _Member], texts: Mapping[str, str], plan: Plan
) -> Iterator[str]:
    record = f"{identity.dist_info(plan.version)}/RECORD"
    if record not in texts:
        yield f"{record} is missing"
        return
    try:
        rows = archive.parse_record(texts[record])
    except ValueError as error:
        yield str(error)
        return
    for name, count in Counter(row[0] for row in rows).items():
        if count > 1:
            yield f"RECORD lists {name} {count} times"
    listed = {name: (digest, size) for name, digest, size in rows}
    yield from (f"RECORD lists {name}, which is not there" for name in listed.keys() - members)
    yield from (f"RECORD does not list {name}" for name in members.keys() - listed.keys())
    for name in sorted(listed.keys() & members.keys()):
        member = members[name]
        right = (archive.record_form(member.digest), str(member.size))
        expected = ("", "") if name == record else right
        if listed[name] != expected:
            yield (f"RECORD, {name}: expected {_shown(expected)}, found {_shown(listed[name])}")


def _binary_problems(members: Mapping[str, _Member], plan: Plan) -> Iterator[str]:
    tested = {**plan.libraries, **plan.executables}
    for name in sorted(tested):
        member = members.get(f"{identity.BIN}/{name}")
        if member is None:
            yield f"{name} was tested and is not in the wheel"
            continue
        if member.digest.hex() != tested[name]:
            yield (
                f"{name} is not the file that was tested: expected sha256 {tested[name]}, "
                f"found {member.digest.hex()}"
            )
        if member.executable != (name in plan.executables):
            yield f"{name} is {'' if member.executable else 'not '}executable in the wheel"
    for path in sorted(members.keys() - {f"{identity.BIN}/{name}" for name in tested}):
        kinds = [kind for head, kind in _RUNNABLE.items() if members[path].head.startswith(head)]
        kinds += ["executable"] if members[path].executable else []
        if kinds:
            yield f"{path} is {' and '.join(kinds)} that was never tested"
        elif path.startswith(f"{identity.BIN}/"):
            yield f"{path} lies among the binaries and was never tested"


def _metadata_problems(texts: Mapping[str, str], plan: Plan) -> Iterator[str]:
    folder = identity.dist_info(plan.version)
    wanted = {
        ("METADATA", "Name"): [identity.DISTRIBUTION],
        ("METADATA", "Version"): [plan.version],
        ("METADATA", "Summary"): [plan.description],
        ("METADATA", "Requires-Python"): [identity.REQUIRES_PYTHON],
        ("METADATA", "Requires-Dist"): list(plan.requires),
        ("WHEEL", "Tag"): [plan.tag],
        ("WHEEL", "Root-Is-Purelib"): ["false"],
    }
    parser = email.parser.HeaderParser(policy=email.policy.compat32)
    for (file, header), expected in wanted.items():
        message = parser.parsestr(texts.get(f"{folder}/{file}", ""))
        found = [str(value) for value in message.get_all(header, [])]
        if found != expected:
            yield f"{file}, {header}: expected {_shown(expected)}, found {_shown(found)}"
    scripts = _console_scripts(texts.get(f"{folder}/entry_points.txt", ""))
    if scripts != identity.entry_points(plan.executables):
        yield (
            f"console scripts: expected {_shown(sorted(plan.executables))}, "
            f"found {_shown(sorted(scripts))} or other functions behind them"
        )


def _console_scripts(text: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(delimiters=("=",), strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    groups = parser.sections()
    return dict(parser.items("console_scripts")) if groups == ["console_scripts"] else {}


def _text_problems(members: Mapping[str, _Member], plan: Plan) -> Iterator[str]:
    info = members.get(identity.INFO_FILE)
    if info is None or info.digest.hex() != sha256_bytes(plan.info.encode()):
        yield f"{identity.INFO_FILE} is not the one that was written for this build"
    for name, path in plan.licences.items():
        member = members.get(f"{identity.dist_info(plan.version)}/licenses/{name}")
        if member is None or member.digest.hex() != sha256_bytes(path.read_bytes()):
            yield f"the licence text {name} is not in the wheel as it is in the source tree"


def _shown(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_shown(item) for item in value) or "none"
    return str(value) or "nothing"
