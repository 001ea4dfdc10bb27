"""Shards: found by the first one's name as llama.cpp does, and judged together."""

from pathlib import Path

import pytest

from sparkbuild.errors import ModelError
from sparkbuild.model.build import Build
from sparkbuild.model.read import read_model

from .conftest import File, canary, findings, wrong

NAMES = [f"model-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]


def split(folder: Path) -> list[Path]:
    """The qwen35 canary in three shards, as llama-gguf-split makes them."""
    whole = File.like(canary("qwen35"))
    items = list(whole.tensors.items())
    pieces = [dict(items[:20]), dict(items[20:50]), dict(items[50:])]
    paths = []
    for number, (name, tensors) in enumerate(zip(NAMES, pieces, strict=True)):
        values = dict(whole.values) if number == 0 else {}
        values |= {"split.no": number, "split.count": 3, "split.tensors.count": len(items)}
        paths.append(File(values=values, tensors=tensors).write(folder / name))
    return paths


def rewrite(path: Path, **values: int) -> None:
    shard = read_model(path).shards
    own = next(each for each in shard if each.path == path)
    File(
        values=own.header.values
        | {f"split.{key.replace('_', '.')}": v for key, v in values.items()},
        tensors={t.name: (t.shape, t.type) for t in own.header.tensors},
    ).write(path)


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_shard_names_the_whole(given: int, tmp_path: Path, build: Build) -> None:
    paths = split(tmp_path)
    model = read_model(paths[given])
    assert [shard.path for shard in model.shards] == paths
    assert model.path == paths[0]
    assert set(model.tensors) == set(canary("qwen35").tensors)
    found = findings(model, None, build)
    assert wrong(found) == {}
    assert found["shards"].found == f"3, {sum(p.stat().st_size for p in paths):,} bytes"


def test_a_missing_shard_is_named(tmp_path: Path, build: Build) -> None:
    paths = split(tmp_path)
    paths[2].unlink()
    found = findings(read_model(paths[0]), None, build)
    assert wrong(found)["shards"] == "fault"
    assert "model-00003-of-00003.gguf is missing" in found["shards"].found


def test_without_the_first_shard_there_is_no_metadata(tmp_path: Path) -> None:
    paths = split(tmp_path)
    paths[0].unlink()
    with pytest.raises(ModelError, match="the first one is not beside it") as caught:
        read_model(paths[1])
    assert str(paths[0]) in caught.value.problems[0]


def test_a_shard_that_broke_off_is_told_with_its_bytes(tmp_path: Path, build: Build) -> None:
    paths = split(tmp_path)
    size = paths[1].stat().st_size
    with paths[1].open("r+b") as file:
        file.truncate(size - 1000)
    found = findings(read_model(paths[0]), None, build)
    assert wrong(found) == {"file sizes": "fault"}
    assert f"model-00002-of-00003.gguf: {size - 1000:,} bytes, " in found["file sizes"].found


@pytest.mark.parametrize(
    ("shard", "values", "expected"),
    [
        (1, {"no": 2}, "model-00002-of-00003.gguf: expected split.no 1, found 2"),
        (0, {"tensors_count": 99}, "expected 99 tensors (split.tensors.count), found 71"),
    ],
)
def test_shards_of_different_sets_are_told(
    shard: int, values: dict[str, int], expected: str, tmp_path: Path, build: Build
) -> None:
    paths = split(tmp_path)
    rewrite(paths[shard], **values)
    found = findings(read_model(paths[0]), None, build)
    assert wrong(found) == {"shards": "fault"}
    assert expected in found["shards"].found


def test_shards_that_disagree_on_their_number_are_told(tmp_path: Path, build: Build) -> None:
    paths = split(tmp_path)
    rewrite(paths[0], count=4)
    found = findings(read_model(paths[1]), None, build)
    assert "model-00001-of-00003.gguf says 4 shards, another one 3" in found["shards"].found


def test_a_shard_that_is_another_one_is_told(tmp_path: Path, build: Build) -> None:
    paths = split(tmp_path)
    paths[2].unlink()
    paths[2].symlink_to(paths[1])
    found = findings(read_model(paths[0]), None, build)
    assert wrong(found)["shards"] == "fault"
    assert "expected split.no 2, found 1" in found["shards"].found
    assert "30 tensors are in more than one shard" in found["shards"].found


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    paths = split(tmp_path)
    for path, target in ((paths[1], paths[2]), (paths[2], paths[1])):
        path.unlink()
        path.symlink_to(target)
    with pytest.raises(ModelError, match=r"model-00002-of-00003\.gguf") as caught:
        read_model(paths[0])
    assert "Too many levels of symbolic links" in caught.value.problems[0]


def test_a_renamed_shard_is_told(tmp_path: Path, build: Build) -> None:
    paths = split(tmp_path)
    renamed = paths[0].rename(tmp_path / "mine.gguf")
    found = findings(read_model(renamed), None, build)
    assert wrong(found)["shards"] == "fault"
    assert "expected a name that ends in -00001-of-00003.gguf" in found["shards"].found


def test_more_shards_than_any_model_has_are_refused(tmp_path: Path) -> None:
    path = File(values={"split.count": 65535}).write(tmp_path / "m-00001-of-65535.gguf")
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert "split.count: expected at most 1024, found 65535" in caught.value.problems[0]
