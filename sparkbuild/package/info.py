"""``build-info.json``: what a wheel holds and was made of. No times, no places of this machine."""

from __future__ import annotations

import json

from sparkbuild import __version__
from sparkbuild.build.model import BinaryFacts
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.model import Toolkit

SCHEMA = 1


def build_info(
    *, version: str, variant: str, tree: PatchedTree, toolkit: Toolkit, facts: BinaryFacts
) -> dict[str, object]:
    """What ``sparkbuild_llama_cpp.build_info()`` returns on the user's machine.

    Paths are left out on purpose: the same files must give the same wheel wherever they were
    built.
    """
    return {
        "schema": SCHEMA,
        "version": version,
        "sparkbuild": __version__,
        "variant": variant,
        "source": {
            "build": tree.build,
            "digest": tree.source_digest,
            "commit": tree.commit,
            "tree": tree.tree,
            "identity": tree.identity,
        },
        "patches": [
            {"file": patch.file, "sha256": patch.sha256, "reason": patch.reason}
            for patch in tree.patches
        ],
        "toolchain": {
            "name": toolkit.toolchain,
            "label": toolkit.label,
            "kind": toolkit.kind,
            "identity": toolkit.identity,
            "architectures": list(toolkit.architectures),
            "accepted": [
                {"id": accepted.id, "effect": accepted.effect} for accepted in toolkit.accepted
            ],
            "parts": {
                part.name: {"version": part.version, "sha256": part.sha256}
                for part in sorted(toolkit.parts, key=lambda part: part.name)
            },
            "host_compiler": {
                "identification": toolkit.host.identification,
                "target": toolkit.host.target,
                "sha256": toolkit.host.sha256,
            },
        },
        "version_line": facts.version_line,
        "system_libraries": sorted(facts.system_libraries),
        "binaries": {
            binary.name: {
                "sha256": binary.sha256,
                "size": binary.size,
                "build_id": binary.build_id,
                "gpu_code": list(binary.sm_targets),
            }
            for binary in sorted(facts.binaries, key=lambda binary: binary.name)
        },
    }


def as_json(info: dict[str, object]) -> str:
    """The file's text: keys sorted, ASCII, a line break at the end."""
    return json.dumps(info, indent=2, sort_keys=True) + "\n"
