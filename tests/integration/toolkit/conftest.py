"""A real toolkit, made once a session as a user would."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.toolkit import tree
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.fetch import fetch_wheels
from sparkbuild.toolkit.lock import Platform
from sparkbuild.toolkit.provision import install
from sparkbuild.toolkit.unpack import unpack
from sparkbuild.workspace import Workspace


@pytest.fixture(scope="session")
def cuda_root(real_work: Path) -> Path:
    """CUDA 13.0, provisioned from its lock for this machine; treat it as read-only."""
    platform = cast("Platform", current_platform())
    work = Workspace(real_work)
    root = tree.default_root(work.toolkits, "cuda-13.0", platform)
    install(
        read_book(find_recipes(None)),
        "cuda-13.0",
        platform,
        root=root,
        downloads=work.downloads,
        progress=lambda _done, _total, _text: None,
    )
    return root


@pytest.fixture(scope="session")
def other_parts(real_work: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real parts of CUDA 13.2.0 (nvcc 13.2.51): compiler, crt headers, run time; no cuBLAS.

    Laid out as a root, to take parts from; treat it as read-only.
    """
    locked = read_book(find_recipes(None)).locked(
        "cuda-13.2.0", cast("Platform", current_platform())
    )
    assert locked is not None
    wanted = {"nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime"}
    wheels = [wheel for wheel in locked.wheels if wheel.project in wanted]
    assert len(wheels) == len(wanted)
    fetched = fetch_wheels(wheels, Workspace(real_work).downloads, lambda *_: None)
    place = tmp_path_factory.mktemp("other") / "cuda-13.2.0"
    unpack(fetched.files, place)
    return place
