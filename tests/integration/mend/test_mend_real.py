"""The same canary in both spellings says the same on llama.cpp as upstream has it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from sparkbuild.canary.catalogue import DATA
from sparkbuild.errors import SmokeError
from sparkbuild.llama.server import Limits, running

from .conftest import GLM, TOWER, Respell

pytestmark = pytest.mark.real

LIMITS = Limits(start=120, request=120, stop=10, memory=0, missing=1 << 40)
FLAGS = ("--ctx-size", "2048", "--parallel", "1", "--threads", "2", "--no-warmup")
PICTURE = min((DATA / "glm5-next" / "suite" / "pictures").glob("*.png"))
PROMPTS = ("The lamp in the hall is", "[gMASK]<sop><|user|>\nwho are you?<|assistant|>\n", "a b c")


@contextmanager
def server(real_build: Any, model: Path, tower: Path, scratch: Path) -> Iterator[httpx.Client]:
    with running(
        real_build.bin / "llama-server",
        [*FLAGS, "--mmproj", str(tower)],
        model=model,
        scratch=scratch / "home",
        log=scratch / "server.log",
        limits=LIMITS,
    ) as started:
        yield started.client


def said(client: httpx.Client) -> list[object]:
    """Tokens and log-probabilities of some texts, and what is said of a picture."""
    found: list[object] = []
    for prompt in PROMPTS:
        body = {"prompt": prompt, "n_predict": 40, "temperature": 0, "return_tokens": True,
                "n_probs": 1}  # fmt: skip
        answer = client.post("/completion", json=body).json()
        numbers = [each["logprob"] for each in answer["completion_probabilities"]]
        found.append((answer["tokens"], numbers, answer["stop_type"]))
    url = "data:image/png;base64," + base64.b64encode(PICTURE.read_bytes()).decode()
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "read it"},
    ]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 40, "temperature": 0}
    [choice] = client.post("/v1/chat/completions", json=body).json()["choices"]
    found.append((choice["message"], choice["finish_reason"]))
    return found


@pytest.fixture(scope="module")
def right(real_build: Any, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    with server(real_build, GLM, TOWER, tmp_path_factory.mktemp("right")) as client:
        return said(client)


@pytest.mark.parametrize("how", [(), ("short", "nokpool", "noend")])
def test_a_mended_set_says_what_the_canary_says(
    how: tuple[str, ...], right: list[object], real_build: Any, respell: Respell, tmp_path: Path,
    run_sparkbuild: Any,
) -> None:  # fmt: skip
    old, tower, out = respell(GLM, *how), respell(TOWER), tmp_path / "set"
    for path in (old, tower):
        done = run_sparkbuild("inspect", str(path), "--fix", str(out))
        assert done.returncode == 0, done.stderr
    with server(real_build, out / old.name, out / tower.name, tmp_path) as client:
        assert said(client) == right
    assert len({str(each) for each in right}) == len(right)


@pytest.mark.parametrize(
    ("model", "tower", "text"),
    [(True, False, "unknown model architecture: 'glm5next'"),
     (False, True, "unknown projector type: glm5next")],
)  # fmt: skip
def test_without_it_upstream_refuses_the_file(
    model: bool, tower: bool, text: str, real_build: Any, respell: Respell, tmp_path: Path
) -> None:
    chosen = (respell(GLM) if model else GLM, respell(TOWER) if tower else TOWER)
    with pytest.raises(SmokeError), server(real_build, *chosen, tmp_path):
        pass
    assert text in (tmp_path / "server.log").read_text(errors="replace")


def test_an_mmproj_of_the_fork_loads_and_answers(
    real_build: Any, respell: Respell, tmp_path: Path, run_sparkbuild: Any
) -> None:
    """Its pictures may have more tokens than the canary's, so its answer is another one."""
    out = tmp_path / "mmproj.gguf"
    done = run_sparkbuild("inspect", str(respell(TOWER, "fork")), "--fix", str(out))
    assert done.returncode == 0, done.stderr
    with server(real_build, GLM, out, tmp_path) as client:
        assert said(client)[-1]
