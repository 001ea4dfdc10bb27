"""Wheels of a few kilobytes: one as ``make`` leaves it, one of a stranger."""

from __future__ import annotations

import io
import json
import stat
import zipfile
from collections.abc import Mapping

from sparkbuild.files import sha256_bytes
from sparkbuild.package import archive, identity, statement
from sparkbuild.package.provenance import SBOM_FILE, STATEMENT_FILE
from sparkbuild.package.statement import (
    Asked,
    Builder,
    Definition,
    Flags,
    Judged,
    Provenance,
    Resource,
    Run,
)

from .elf import Elf, fatbin

VERSION = "11434.0.0+cu130.vision.g0f834b00eb9e"
NAME = identity.wheel_name(VERSION, "py3-none-linux_aarch64")


def info(
    nvcc: str = "13.0.88", patches: tuple[tuple[str, str], ...] = (), variant: str = "vision"
) -> dict[str, object]:
    """``build-info.json`` of a CUDA build."""
    parts = {name: {"version": nvcc, "sha256": "1" * 64} for name in ("nvcc", "cicc", "ptxas")}
    return {
        "sparkbuild": "0.1.0", "variant": variant,
        "source": {"build": 11434, "commit": "e" * 40, "tree": "f" * 40, "digest": "d" * 64},
        "patches": [{"file": file, "sha256": digest, "reason": "why"} for file, digest in patches],
        "toolchain": {"name": "cuda-13.0", "identity": "2" * 64, "architectures": ["121a"],
                      "accepted": [], "parts": parts,
                      "host_compiler": {"identification": "GNU 13.3.0"}},
        "binaries": {},
    }  # fmt: skip


def ours(more: Mapping[str, bytes] | None = None, **changes: object) -> bytes:
    """A wheel of sparkbuild's: library, build-info.json, statement, SBOM; all of one story."""
    told = info(**changes)  # type: ignore[arg-type]
    folder = identity.dist_info(VERSION)
    library = Elf(fatbin=fatbin("s121asize"), build=11434, commit="e" * 12).data()
    programs = {"libggml-cuda.so.0": library, **(more or {})}
    told["binaries"] = {name: {"sha256": sha256_bytes(data)} for name, data in programs.items()}
    members = {
        identity.INFO_FILE: json.dumps(told).encode(),
        f"{folder}/METADATA": f"Name: {identity.DISTRIBUTION}\nVersion: {VERSION}\n"
        "Summary: llama.cpp\n".encode(),
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-linux_aarch64\n",
        **{f"{identity.BIN}/{name}": data for name, data in programs.items()},
        f"{folder}/{SBOM_FILE}": b'{"bomFormat": "CycloneDX", "specVersion": "1.6"}',
    }
    digests = {name: sha256_bytes(data) for name, data in members.items()}
    members[f"{folder}/{STATEMENT_FILE}"] = statement.statement_text(
        statement.subjects(digests), statement.PROVENANCE, _provenance(told)
    )
    return pack(members, f"{folder}/RECORD")


def _provenance(told: dict[str, object]) -> Provenance:
    chain = told["toolchain"]
    assert isinstance(chain, dict)
    patches = told["patches"]
    assert isinstance(patches, list)
    judged = {
        statement.QUALIFICATION: Judged(verdict="right"),
        statement.SMOKE: Judged(verdict="passed", suite="canary", model_sha256="3" * 64),
    }
    contents = {name: statement.canonical(one) for name, one in judged.items()}
    return Provenance(
        build_definition=Definition(
            build_type=statement.BUILD_TYPE,
            external_parameters=Asked(
                variant=str(told["variant"]), toolchain="cuda-13.0", architectures=("121a",)
            ),
            internal_parameters=Flags(cmake=(), toolkit="2" * 64),
            resolved_dependencies=(
                Resource(name=statement.SOURCE, digest={"sparkbuildSource": "d" * 64}),
                Resource(
                    name=statement.PATCHED, digest={"gitTree": "f" * 40, "gitCommit": "e" * 40}
                ),
                *(Resource(name=f"{statement.PATCH}{one['file']}",
                           digest={"sha256": one["sha256"]}) for one in patches),
                *(Resource(name=f"{statement.PART}{name}", digest={"sha256": "1" * 64})
                  for name in chain["parts"]),
            ),
        ),
        run_details=Run(
            builder=Builder(id=statement.UNSIGNED, version={"sparkbuild": "0.1.0"}),
            byproducts=tuple(
                Resource(name=name, digest={"sha256": sha256_bytes(content)}, content=content)
                for name, content in contents.items()
            ),
        ),
    )  # fmt: skip


def strange(library: bytes | None = None, name: str = "llama_somewhere") -> bytes:
    """Another project's wheel, with a library for other GPUs."""
    folder = f"{name}-1.2.dist-info"
    members = {
        f"{name}/__init__.py": b"",
        f"{name}/lib/libggml-cuda.so": library or Elf(fatbin=fatbin("s90", "s120a")).data(),
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n".encode(),
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
    }
    return pack(members, f"{folder}/RECORD")


def pack(members: dict[str, bytes], record: str) -> bytes:
    """An archive of these, with a RECORD that fits."""
    rows = [(name, archive.record_digest(data), str(len(data))) for name, data in members.items()]
    text = archive.record_text([*rows, (record, "", "")])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archived:
        for name, data in {**members, record: text.encode()}.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archived.writestr(member, data)
    return out.getvalue()
