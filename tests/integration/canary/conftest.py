"""A toy canary and a build of stubs that knows its few numbers."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from sparkbuild.canary.catalogue import shipped
from sparkbuild.canary.gguf.rewrite import widen
from sparkbuild.canary.numbers import encode_numbers
from sparkbuild.canary.suite import Answer, Numbers, Reference, Suite, encode_suite
from sparkbuild.files import sha256_bytes, sha256_file

STUB = Path(__file__).parents[2] / "data/canary/numbers_server.py"
LOGPROBS = np.log(np.array([[0.1, 0.2, 0.3, 0.4]], np.float32))
NUMBERS = encode_numbers({"r": LOGPROBS})
LIMITS = """schema = 1
[[bounds]]
worst = 1e-6
median = 1e-6
reason = "x"
[[drafts]]
depth = 2
healthy = 0.9
damaged = 0.1
reason = "x"
"""


def write_model(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "toy")
    for name in ("blk.0.ffn_up.weight", "blk.1.nextn.eh_proj.weight"):
        values = np.arange(512, dtype=np.float32).reshape(16, 32)
        data = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    toy = folder / "toy"
    toy.mkdir(parents=True)
    write_model(toy / "m.gguf")
    (toy / "n.npz").write_bytes(NUMBERS)
    suite = Suite(
        schema=1, canary="toy", vocabulary=4, context=256,
        answers=(Answer(name="a", group="words", raw="hi", text="x", finish="length", count=4),),
        references=(Reference(name="r", prompt=(1,), tokens=(2,)),),
        numbers=Numbers(file="n.npz", sha256=sha256_bytes(NUMBERS)),
    )  # fmt: skip
    (toy / "suite.json").write_bytes(encode_suite(suite))
    (toy / "limits.toml").write_text(LIMITS)
    files = "".join(
        f'[[canaries.files]]\nfile = "{f.file}"\nsha256 = "{f.sha256}"\nbytes = {f.bytes}\n'
        for f in shipped(toy, folder)
    )
    (folder / "catalogue.toml").write_text(
        'schema = 1\nlicence = "MIT"\n[[canaries]]\nname = "toy"\narchitecture = "toy"\n'
        'summary = "a toy"\nmodel = "toy/m.gguf"\nsuite = "toy"\ndrafts = true\n' + files
    )
    return folder


@pytest.fixture
def build(data: Path, tmp_path: Path) -> Path:
    """Programs in ``bin``; ``healthy.json`` beside it says what the server says."""
    folder = tmp_path / "build/bin"
    folder.mkdir(parents=True)
    widen(data / "toy/m.gguf", tmp_path / "wide.gguf")
    digests = [sha256_file(data / "toy/m.gguf"), sha256_file(tmp_path / "wide.gguf")]
    healthy = {"sha256": digests, "token": 2, "logprobs": LOGPROBS[0].tolist()}
    (folder.parent / "healthy.json").write_text(json.dumps(healthy))
    for name in ("llama-server", "llama-quantize"):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\nexec {sys.executable} {STUB} {folder.parent / "healthy.json"} "$@"\n'
        )
        program.chmod(0o755)
    return folder.parent


@pytest.fixture(scope="session")
def change() -> Callable[..., None]:
    """The function ``change(build, **values)``: what the stubs of a build say from now on."""

    def changed(build: Path, **values: Any) -> None:
        path = build / "healthy.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return changed
