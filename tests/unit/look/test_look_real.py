"""Against a real build and its wheel: what they say of themselves is what they were made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.build.look import look
from sparkbuild.inspect_binary import known_architectures, see_wheel
from sparkbuild.manifest import find_recipes
from sparkbuild.model.build import plain

pytestmark = pytest.mark.real


def test_a_library_says_its_source(real_build: Any) -> None:
    found = look(real_build.bin / "libllama-common.so.0").look
    assert (found.build, found.commit) == (real_build.build, real_build.identity)


def test_libllama_knows_the_models_of_its_source(real_build: Any, real_source: Path) -> None:
    listed = (real_source / "src" / "llama-arch.cpp").read_text()
    names = set(re.findall(r'\{ LLM_ARCH_\w+, +"([^"]+)"', listed))
    found = look(real_build.bin / "libllama.so.0", known_architectures()).look
    assert len(found.architectures) > 100
    # A linker lets a name share the end of a longer one, which then counts as known.
    strange = {name for name in found.architectures if name not in names}
    assert all(any(other.endswith(name) for other in names) for name in strange), strange
    assert {"glm5-next", "qwen35", "llama"} <= set(found.architectures)
    sources = [path.read_text() for path in (real_source / "src" / "models").glob("*.cpp")]
    drawn = {name for s in sources for name in re.findall(r"llama_model_(\w+)::graph_mtp::", s)}
    assert set(found.drafts) == {plain(name) for name in drawn}


def test_a_wheel_of_make_is_right(real_build: Any) -> None:
    document = see_wheel(real_build.wheel, find_recipes(None)).document
    states = {one["name"]: one["state"] for one in document["findings"]}
    assert {states[name] for name in ("file name", "RECORD", "provenance")} == {"ok"}
    assert document["made"]["build"] == real_build.build
    assert document["made"]["smoke"].startswith("passed, suite ")
    commits = {one["commit"] for one in document["binaries"]}
    assert commits == {None, real_build.identity}
