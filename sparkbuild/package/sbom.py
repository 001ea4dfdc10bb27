"""The bill of materials of a wheel, as CycloneDX 1.6 JSON: the same build, the same bytes."""

from __future__ import annotations

import fnmatch
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import (
    Component,
    ComponentType,
    Diff,
    Patch,
    PatchClassification,
    Pedigree,
    Swhid,
)
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6

from sparkbuild.build.model import BinaryFacts
from sparkbuild.files import sha256_bytes, sha256_file
from sparkbuild.manifest import Table, load
from sparkbuild.package import identity
from sparkbuild.package.compiled import Compiled
from sparkbuild.package.model import Made
from sparkbuild.toolkit.model import Part

UNSTATED: Final = "unstated"
"""Version of a component whose files state none: their digests say which one it is."""

_TABLE: Final = Path(__file__).parent / "components.toml"
_SPACE: Final = uuid.UUID("9b9c1c5e-2d0b-5f0e-8a58-6f1d1f6f2b11")
"""Of the documents' serial numbers, which follow from their content; drawn once."""


class Vendored(Table, frozen=True):
    """Third-party code inside llama.cpp's tree: which files, where its version stands."""

    name: str
    files: tuple[str, ...]
    licence: str
    version_file: str = ""
    version: str = ""
    home: str = ""


class FromToolkit(Table, frozen=True):
    """A part of a CUDA toolkit that is in the binaries, or that they load."""

    part: str
    name: str
    licence: str
    needed: str = ""
    headers: tuple[str, ...] = ()
    device: bool = False
    home: str = ""


class Components(Table, frozen=True):
    """``components.toml``."""

    own: tuple[str, ...]
    vendored: tuple[Vendored, ...]
    toolkit: tuple[FromToolkit, ...]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Third-party code that was compiled: its files by digest."""

    name: str
    version: str
    licence: str
    home: str
    files: dict[str, str]


@cache
def table() -> Components:
    """The table of known components."""
    return load(_TABLE, Components)


def sbom(made: Made, facts: BinaryFacts, compiled: Compiled, *, version: str) -> bytes:
    """The document's bytes; no time and no place is in them.

    Listed are the binaries, llama.cpp with its patches, the third-party code that was compiled,
    and the toolkit's parts that are in the binaries or that they load.
    """
    vendored = [_third_party(one) for one in vendored_in(Path(made.tree.directory), compiled)]
    source = _llama_cpp(made)
    parts = [
        _part(known, part) for known, part in toolkit_parts(made.toolkit.parts, facts, compiled)
    ]
    root = _wheel(facts, version)
    bom = Bom(
        metadata=BomMetaData(component=root),
        components=[source, *vendored, *parts],
        serial_number=_SPACE,
    )
    bom.register_dependency(root, [source, *parts])
    bom.register_dependency(source, vendored)
    for component in (*vendored, *parts):
        bom.register_dependency(component)
    return _deterministic(msgspec.json.decode(JsonV1Dot6(bom).output_as_string()))


def vendored_in(tree: Path, compiled: Compiled) -> list[Found]:
    """Third-party code among the compiled files of a tree, by name."""
    known = table()
    files: dict[str, dict[str, str]] = {}
    by_name = {one.name: one for one in known.vendored}
    for path in compiled.source:
        name = _owner(path, known)
        if name:
            files.setdefault(name, {})[path] = sha256_file(tree / path)
    found = []
    for name in sorted(files):
        entry = by_name.get(name) or Vendored(name=name, files=(), licence="")
        found.append(
            Found(
                name=name,
                version=_version(tree, entry),
                licence=entry.licence,
                home=entry.home,
                files=files[name],
            )
        )
    return found


def toolkit_parts(
    parts: Sequence[Part], facts: BinaryFacts, compiled: Compiled
) -> Iterator[tuple[FromToolkit, Part]]:
    """Parts of the toolkit that the binaries load, or that are compiled into them."""
    there = {part.name: part for part in parts}
    needed = {name for binary in facts.binaries for name in binary.needed}
    gpu_code = any(binary.sm_targets for binary in facts.binaries)
    for known in table().toolkit:
        part = there.get(known.part)
        if part is None:
            continue
        if (
            (known.needed and fnmatch.filter(needed, known.needed))
            or _any_matches(compiled.toolkit, known.headers)
            or (known.device and gpu_code)
        ):
            yield known, part


def _owner(path: str, known: Components) -> str:
    """The component that a file belongs to; empty where it is llama.cpp's own."""
    if _any_matches([path], known.own):
        return ""
    for one in known.vendored:
        if _any_matches([path], one.files):
            return one.name
    parts = path.split("/")
    return parts[1] if parts[0] == "vendor" and len(parts) > 2 else ""


def _any_matches(paths: Iterable[str], patterns: Iterable[str]) -> bool:
    wanted = tuple(patterns)
    return any(fnmatch.fnmatchcase(path, one) for path in paths for one in wanted)


def _version(tree: Path, entry: Vendored) -> str:
    if not entry.version:
        return UNSTATED
    try:
        text = (tree / entry.version_file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return UNSTATED
    match = re.search(entry.version, text)
    return ".".join(match.groups()) if match else UNSTATED


def _wheel(facts: BinaryFacts, version: str) -> Component:

    binaries = {
        f"{identity.BIN}/{one.name}": one.sha256
        for one in sorted(facts.binaries, key=lambda one: one.name)
    }
    system = " ".join(sorted(facts.system_libraries))
    return Component(
        name=identity.DISTRIBUTION,
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref="wheel",
        components=_files(binaries, "wheel"),
        properties=[Property(name="sparkbuild:system-libraries", value=system)],
    )


def _llama_cpp(made: Made) -> Component:

    facts = {
        "sparkbuild:hash-is-over": "path, mode and bytes of every declared path",
        "sparkbuild:patched-tree": made.tree.tree,
        **{f"sparkbuild:patch:{one.file}": one.sha256 for one in made.tree.patches},
    }
    patches = [
        Patch(type=PatchClassification.UNOFFICIAL, diff=Diff(url=XsUri(one.file)))
        for one in made.tree.patches
    ]
    return Component(
        name="llama.cpp",
        version=f"b{made.source.build}" if made.source.build else made.source.commit[:12],
        type=ComponentType.LIBRARY,
        bom_ref="llama.cpp",
        licenses=_licences("MIT"),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=made.source.digest)],
        swhids=[Swhid(f"swh:1:dir:{made.source.tree}")],
        pedigree=Pedigree(patches=patches) if patches else None,
        properties=[Property(name=name, value=value) for name, value in facts.items()],
    )


def _third_party(one: Found) -> Component:

    reference = f"llama.cpp/{one.name}"
    return Component(
        name=one.name,
        version=one.version,
        type=ComponentType.LIBRARY,
        bom_ref=reference,
        licenses=_licences(one.licence),
        external_references=_home(one.home),
        components=_files(one.files, reference),
    )


def _part(known: FromToolkit, part: Part) -> Component:

    how = "loaded, not in the wheel" if known.needed else "compiled in"
    return Component(
        name=known.name,
        version=part.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"toolkit/{part.name}",
        licenses=_licences(known.licence),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)],
        external_references=_home(known.home),
        properties=[
            Property(name="sparkbuild:toolkit-part", value=part.name),
            Property(name="sparkbuild:use", value=how),
        ],
    )


def _files(digests: Mapping[str, str], owner: str) -> list[Component]:

    return [
        Component(
            name=path,
            type=ComponentType.FILE,
            bom_ref=f"{owner}:{path}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        )
        for path, digest in sorted(digests.items())
    ]


def _licences(expression: str) -> list[Any]:

    return [LicenseExpression(expression)] if expression else []


def _home(address: str) -> list[Any]:

    if not address:
        return []
    return [ExternalReference(type=ExternalReferenceType.WEBSITE, url=XsUri(address))]


def _deterministic(document: dict[str, Any]) -> bytes:
    """Without the time that the library writes, with a serial number that follows from the rest."""
    document["metadata"].pop("timestamp", None)
    document.pop("serialNumber", None)
    rest = msgspec.json.encode(document, order="sorted")
    document["serialNumber"] = uuid.uuid5(_SPACE, sha256_bytes(rest)).urn
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1) + b"\n"
