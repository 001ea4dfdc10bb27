"""``sparkbuild inspect --fix`` as a user runs it: what it writes, says, refuses and leaves."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import struct
import subprocess  # noqa: TID251 - tests run the product from outside
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from .conftest import GLM, TOWER, Respell

PROGRAM = str(Path(sys.executable).parent / "sparkbuild")
USAGE, HOST, FULL, MODEL = 2, 16, 17, 20
EVERY = ("short", "nokpool", "noend")


def ran(run: Any, code: int, *arguments: str | Path, **environment: str) -> str:
    done = run("inspect", *map(str, arguments), **environment)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return " ".join(f"{done.stdout} {done.stderr}".split())


def tensors(path: Path) -> dict[str, tuple[object, ...]]:
    """What gguf-py reads of each: type, shape, digest of its bytes."""
    return {
        tensor.name: (
            tensor.tensor_type,
            tuple(tensor.shape),
            hashlib.sha256(tensor.data.tobytes()).hexdigest(),
        )
        for tensor in gguf.GGUFReader(path).tensors
    }


def metadata(path: Path) -> dict[str, tuple[Any, object]]:
    """Types and value by key, in order, as gguf-py reads them."""
    fields = gguf.GGUFReader(path).fields
    return {
        key: (tuple(field.types), field.contents())
        for key, field in fields.items()
        if not key.startswith("GGUF.")
    }


@pytest.mark.parametrize("how", [(), ("short",), ("nokpool",), ("oneend",), ("noend",), EVERY])
def test_a_mended_model_is_what_upstream_would_have_written(
    how: tuple[str, ...], respell: Respell, tmp_path: Path, run_sparkbuild: Any
) -> None:
    old, new = respell(GLM, *how), tmp_path / "new.gguf"
    digest = hashlib.sha256(old.read_bytes()).hexdigest()
    told = json.loads(run_sparkbuild("inspect", str(old), "--fix", str(new), "--json").stdout)
    assert (told["result"], told["exit_code"], told["schema"]) == ("passed", 0, 1)
    assert told["written"]["path"] == str(new)
    assert told["written"]["bytes"] == new.stat().st_size
    assert hashlib.sha256(old.read_bytes()).hexdigest() == digest
    assert metadata(new) == metadata(GLM)
    assert tensors(new) == tensors(GLM) == tensors(old)
    kept = [key for key in metadata(old) if key.replace("glm5next", "glm5-next") in metadata(new)]
    assert [key.replace("glm5next", "glm5-next") for key in kept] == list(metadata(new))[
        : len(kept)
    ]
    ran(run_sparkbuild, 0, new, "--available", "64G")


def test_a_mended_mmproj_is_what_upstream_would_have_written(
    respell: Respell, tmp_path: Path, run_sparkbuild: Any
) -> None:
    new = tmp_path / "new.gguf"
    ran(run_sparkbuild, 0, respell(TOWER), "--fix", new)
    assert metadata(new) == metadata(TOWER)
    fork = tmp_path / "fork.gguf"
    text = ran(run_sparkbuild, 0, respell(TOWER, "fork"), "--fix", fork, COLUMNS="120")
    assert "clip.projector_type: glm5next -> glm5v" in text
    found, right = metadata(fork), metadata(TOWER)
    bounds = {f"clip.vision.image_{end}_pixels" for end in ("min", "max")}
    assert {key: found[key] for key in found if key not in bounds} == {
        key: right[key] for key in right if key not in bounds
    }
    # What the fork's own code has for every such file, in pixels of 28 x 28.
    assert [found[f"clip.vision.image_{end}_pixels"][1] for end in ("min", "max")] == [
        16 * 784, 8000 * 784,
    ]  # fmt: skip
    assert tensors(fork) == tensors(TOWER)
    ran(run_sparkbuild, 0, GLM, "--mmproj", fork, "--available", "64G")


def test_what_is_changed_and_why_is_said(
    respell: Respell, tmp_path: Path, run_sparkbuild: Any
) -> None:
    old, new = respell(GLM, *EVERY), tmp_path / "a b.gguf"
    text = ran(run_sparkbuild, 0, old, "--fix", new, COLUMNS="160")
    assert "general.architecture: glm5next -> glm5-next" in text
    assert "39 keys: glm5next.* -> glm5-next.*" in text
    assert "glm5-next.attention.head_count_kv: 9 entries -> 10" in text
    assert "attention.indexer.kpool: missing -> 4 llama.cpp demands it" in text
    assert "tokenizer.ggml.eom_token_id: missing -> 495 <|observation|> ends a turn too" in text
    assert f"next step: sparkbuild inspect '{new}'" in text


def test_inspect_says_what_can_be_mended(respell: Respell, run_sparkbuild: Any) -> None:
    old, tower = respell(GLM, *EVERY), respell(TOWER, "fork")
    text = ran(run_sparkbuild, MODEL, old, "--mmproj", tower, COLUMNS="200")
    assert f"can be mended: 8 changes of its metadata: sparkbuild inspect {old} --fix OUT" in text
    assert f"sparkbuild inspect {tower} --fix OUT" in text
    done = run_sparkbuild("inspect", str(GLM), "--json", "--available", "64G")
    assert json.loads(done.stdout)["mendable"] == []


def test_without_anything_to_mend_nothing_is_written(tmp_path: Path, run_sparkbuild: Any) -> None:
    for path in (GLM, TOWER):
        text = ran(run_sparkbuild, 0, path, "--fix", tmp_path / "new.gguf")
        assert "nothing to mend: no file was written" in text
        done = run_sparkbuild("inspect", str(path), "--fix", str(tmp_path / "set"), "--json")
        told = json.loads(done.stdout)
        assert (told["changes"], told["written"], told["exit_code"]) == ([], None, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_set_is_linked_and_served_from_its_folder(
    respell: Respell, tmp_path: Path, run_sparkbuild: Any
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    names = split(respell(GLM, "nokpool"), folder)
    out = tmp_path / "out"
    told = json.loads(run_sparkbuild("inspect", str(names[1]), "--fix", str(out), "--json").stdout)
    assert told["written"]["copied"] == 0
    assert told["written"]["links"] == {str(out / name.name): str(name) for name in names[1:]}
    assert metadata(out / names[0].name)["glm5-next.attention.indexer.kpool"][1] == 4
    ran(run_sparkbuild, 0, out / names[0].name, "--available", "64G")


def split(path: Path, folder: Path) -> list[Path]:
    """Two files: the metadata alone, as published sets have it, and all tensors."""
    reader = gguf.GGUFReader(path)
    names = [folder / f"m-{number:05d}-of-00002.gguf" for number in (1, 2)]
    data = path.read_bytes()
    first = min(tensor.field.offset for tensor in reader.tensors)
    count = len(reader.tensors)
    keys = b"".join(
        struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value
        for key, kind, value in (
            ("split.no", 2, struct.pack("<H", 0)),
            ("split.count", 2, struct.pack("<H", 2)),
            ("split.tensors.count", 5, struct.pack("<i", count)),
        )
    )
    fields = len([key for key in reader.fields if not key.startswith("GGUF.")])
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, fields + 3) + data[24:first] + keys
    names[0].write_bytes(head + bytes(-len(head) % 32))
    last = max(tensor.field.offset + sum(p.nbytes for p in tensor.field.parts)
               for tensor in reader.tensors)  # fmt: skip
    table = data[first:last]
    head = struct.pack("<4sIQQ", b"GGUF", 3, count, 3) + keys.replace(
        struct.pack("<IH", 2, 0), struct.pack("<IH", 2, 1), 1
    )
    head += table
    names[1].write_bytes(head + bytes(-len(head) % 32) + data[reader.data_offset :])
    return names


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<!DOCTYPE html>", "found a web page"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 64, "number of tensors: expected at most"),
        (b"", "magic: expected 4 bytes"),
        (b"GGUF\x03\0\0\0", "number of tensors: expected 8 bytes"),
        (None, "No such file or directory"),
    ],
)
def test_what_is_no_model_is_refused(
    data: bytes | None, said: str, tmp_path: Path, run_sparkbuild: Any
) -> None:
    path = tmp_path / "odd\x1b[31m\nname.gguf"
    if data is not None:
        path.write_bytes(data)
    text = ran(run_sparkbuild, MODEL, path, "--fix", tmp_path / "set")
    assert said in text
    assert "\x1b" not in text
    assert not (tmp_path / "set").exists()
    done = run_sparkbuild("inspect", str(path), "--fix", str(tmp_path / "set"), "--json")
    assert said in json.loads(done.stdout)["failure"]["problems"][0]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_folder_and_a_pipe_are_refused_at_once(
    make: Callable[[Path], object], tmp_path: Path, run_sparkbuild: Any
) -> None:
    make(tmp_path / "x.gguf")
    text = ran(run_sparkbuild, MODEL, tmp_path / "x.gguf", "--fix", tmp_path / "new.gguf")
    assert "expected a file, found" in text


def test_a_download_that_broke_off_is_refused(
    respell: Respell, tmp_path: Path, run_sparkbuild: Any
) -> None:
    path = tmp_path / "short.gguf"
    shutil.copyfile(respell(GLM), path)
    os.truncate(path, path.stat().st_size - 1_000_000)
    text = ran(run_sparkbuild, MODEL, path, "--fix", tmp_path / "new.gguf", COLUMNS="200")
    assert "has faults that no change of its metadata mends" in text
    assert "file sizes: short.gguf" in text
    assert [each.name for each in tmp_path.iterdir()] == ["short.gguf"]


@pytest.mark.parametrize(
    "more",
    [("--ctx", "4096"), ("--mmproj", str(TOWER)), ("--build", "/"), ("--available", "1G"),
     ("--kv", "f16"), ("--no-flash-attn",)],
)  # fmt: skip
def test_flags_of_a_server_have_no_place_here(
    more: tuple[str, ...], respell: Respell, tmp_path: Path, run_sparkbuild: Any
) -> None:
    out = tmp_path / "new.gguf"
    text = ran(run_sparkbuild, USAGE, respell(GLM), "--fix", out, *more)
    assert "--fix looks at one file's metadata alone" in text
    assert not out.exists()


def test_the_input_and_what_is_there_are_never_touched(
    respell: Respell, tmp_path: Path, run_sparkbuild: Any
) -> None:
    path, other = tmp_path / "m.gguf", tmp_path / "mine.gguf"
    shutil.copyfile(respell(GLM), path)
    other.write_text("mine")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert "is the input itself" in ran(run_sparkbuild, USAGE, path, "--fix", path)
    assert "is the input itself" in ran(run_sparkbuild, USAGE, path, "--fix", tmp_path)
    assert "is there already" in ran(run_sparkbuild, USAGE, path, "--fix", other)
    assert "Not a directory" in ran(run_sparkbuild, HOST, path, "--fix", path / "below")
    assert "No such file" in ran(run_sparkbuild, HOST, path, "--fix", tmp_path / "no/x.gguf")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert other.read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.gguf", "mine.gguf"]


def test_a_limit_on_file_sizes_leaves_nothing(respell: Respell, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    out = tmp_path / "set"
    done = subprocess.run(
        [PROGRAM, "inspect", str(respell(GLM)), "--fix", str(out)],
        preexec_fn=limit, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == FULL, done.stderr
    assert "File too large" in done.stderr
    assert not out.exists()


def mounted(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the product in a mount namespace of its own, or skip where none is permitted."""
    base = ["unshare", "--map-root-user", "--mount"]
    try:
        probe = subprocess.run([*base, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("unshare (util-linux) is not installed")
    if probe.returncode:
        pytest.skip("namespaces are not permitted here")
    return subprocess.run(
        [*base, "sh", "-c", script, "sh", PROGRAM, "inspect", *arguments],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.namespace
@pytest.mark.parametrize("size", ["64k", "20m"])
def test_a_full_disk_leaves_nothing(size: str, respell: Respell, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = mounted(
        f'mount -t tmpfs -o size={size} tmpfs {disk} && "$@"; code=$?; ls -A {disk}; exit $code',
        str(respell(GLM)), "--fix", str(disk / "set"),
    )  # fmt: skip
    assert done.returncode == FULL, done.stderr
    assert "no room for" in done.stderr
    assert done.stdout == ""


@pytest.mark.namespace
def test_a_place_that_is_read_only_is_refused(respell: Respell, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = mounted(
        f'mount -t tmpfs -o ro tmpfs {disk} && exec "$@"',
        str(respell(GLM)), "--fix", str(disk / "new.gguf"),
    )  # fmt: skip
    assert done.returncode == HOST, done.stderr
    assert "Read-only file system" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_nothing(
    how: signal.Signals, respell: Respell, tmp_path: Path
) -> None:
    """In the middle of the copy, which the size of the file makes long enough to be met."""
    path, out = tmp_path / "large.gguf", tmp_path / "out"
    out.mkdir()
    shutil.copyfile(respell(GLM), path)
    os.truncate(path, 4 << 30)
    child = subprocess.Popen(
        [PROGRAM, "inspect", str(path), "--fix", str(out / "new.gguf")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 60
        while not writes_below(child.pid, out) and child.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.005)
        child.send_signal(how)
        code = child.wait(60)
    finally:
        child.kill()
    assert code == (-how if how is signal.SIGKILL else 130)
    assert list(out.iterdir()) == []


def writes_below(pid: int, folder: Path) -> bool:
    """Whether a process has a file open there that holds more than a header."""
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            if str(link.readlink()).startswith(f"{folder}/") and link.stat().st_size > 1 << 20:
                return True
        except OSError:
            continue
    return False
