"""A folder that was configured by a CMake that is gone."""

from __future__ import annotations

import sys
from pathlib import Path

from sparkbuild.build_stages import cmake_is_gone


def test_a_build_folder_whose_cmake_went_with_its_environment_is_configured_again(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "CMakeCache.txt"
    assert not cmake_is_gone(cache), "nothing was configured yet"
    cache.write_text(f"CMAKE_COMMAND:INTERNAL={sys.executable}\nX:STRING=/gone\n")
    assert not cmake_is_gone(cache)
    cache.write_text("CMAKE_COMMAND:INTERNAL=/gone/.venv/bin/cmake\n")
    assert cmake_is_gone(cache)
    cache.write_text("half a line")
    assert not cmake_is_gone(cache)
