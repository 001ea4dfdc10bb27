"""A model file made anew: only what was asked for is another, and it loads as before."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from sparkbuild.faults.contract import NotPlantedError
from sparkbuild.faults.edit import AnyModelEdit, Entry, Key, Lose, Rename, Weights
from sparkbuild.faults.seeds.gguf_file import Content, edited, read, write
from sparkbuild.model.read import read_model

Q8, F32 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "toy")
    writer.add_uint32("toy.block_count", 2)
    writer.add_float32("toy.scale", 0.5)
    writer.add_bool("toy.flag", val=True)
    writer.add_array("toy.heads", [8, 8])
    writer.add_array("tokenizer.ggml.tokens", ["<a>", "<b>"])
    wide = rng.standard_normal((16, 32)).astype(np.float32)
    writer.add_tensor("blk.0.a.weight", gguf.quants.quantize(wide, Q8), raw_dtype=Q8)
    writer.add_tensor("blk.0.norm.weight", wide[0])
    writer.add_tensor("blk.1.half.weight", wide.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def plain(content: Content) -> dict[str, object]:
    keys: dict[str, object] = {
        name: (one.value, one.kind.name) for name, one in content.keys.items()
    }
    return keys | {name: (b.data.tobytes(), b.kind.name) for name, b in content.tensors.items()}


def differing(a: Content, b: Content) -> set[str]:
    one, other = plain(a), plain(b)
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def again(content: Content, folder: Path) -> Content:
    (path,) = write(content, folder / "again.gguf")
    return read(path)


def test_without_an_edit_all_of_it_is_the_same(file: Path, tmp_path: Path) -> None:
    assert differing(read(file), again(read(file), tmp_path)) == set()


EDITS: tuple[tuple[AnyModelEdit, set[str]], ...] = (
    (Key(key="toy.block_count", value=3), {"toy.block_count"}),
    (Key(key="toy.scale", value=2.0), {"toy.scale"}),
    (Key(key="toy.new", value=True), {"toy.new"}),
    (Key(key="toy.heads", value=(8, 8, 8)), {"toy.heads"}),
    (Key(key="general.architecture", value="other"), {"general.architecture"}),
    (Entry(key="tokenizer.ggml.tokens", old="<a>", new="<c>"), {"tokenizer.ggml.tokens"}),
    (Lose(what="key", name="toy.s*"), {"toy.scale"}),
    (Lose(what="tensor", name="blk.1.*"), {"blk.1.half.weight"}),
    (Rename(what="tensor", old=".norm.", new=".nrm."), {"blk.0.norm.weight", "blk.0.nrm.weight"}),
    (Rename(what="key", old="toy.flag", new="toy.f"), {"toy.flag", "toy.f"}),
    (Weights(name="blk.0.a.*", how="rolled"), {"blk.0.a.weight"}),
    (Weights(name="blk.0.a.*", how="halved"), {"blk.0.a.weight"}),
    (Weights(name="blk.0.a.*", how="requantised", type="q4_0"), {"blk.0.a.weight"}),
    (Weights(name="blk.0.norm.*", how="negated"), {"blk.0.norm.weight"}),
    (Weights(name="blk.1.*", how="labelled", type="bf16"), {"blk.1.half.weight"}),
)


@pytest.mark.parametrize(("edit", "names"), EDITS)
def test_an_edit_changes_what_it_names_and_nothing_else(
    edit: AnyModelEdit, names: set[str], file: Path, tmp_path: Path
) -> None:
    old = read(file)
    new = again(edited(old, [edit]), tmp_path)
    assert differing(old, new) == names


def test_what_is_labelled_keeps_its_bytes(file: Path) -> None:
    old = read(file).tensors["blk.1.half.weight"]
    edits = [Weights(name="blk.1.*", how="labelled", type="bf16")]
    new = edited(read(file), edits).tensors["blk.1.half.weight"]
    assert (new.kind.name, new.data.tobytes()) == ("BF16", old.data.tobytes())


def test_a_whole_set_of_shards_is_one_model(file: Path, tmp_path: Path) -> None:
    files = write(read(file), tmp_path / "parts.gguf", shards=3)
    assert [path.name for path in files] == [f"parts-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    model = read_model(files[0])
    assert (len(model.shards), model.missing) == (3, ())
    assert set(model.tensors) == set(read(file).tensors)


@pytest.mark.parametrize(
    "edit",
    [
        Key(key="toy.block_count", value=2),
        Entry(key="tokenizer.ggml.tokens", old="<z>", new="<c>"),
        Entry(key="toy.none", old="<z>", new="<c>"),
        Lose(what="key", name="toy.none"),
        Lose(what="tensor", name="none"),
        Rename(what="tensor", old="none", new="one"),
        Rename(what="key", old="none", new="one"),
        Weights(name="none", how="rolled"),
        Weights(name="blk.0.a.*", how="negated"),
        Weights(name="blk.0.norm.*", how="labelled", type="f32"),
    ],
)
def test_an_edit_that_changes_nothing_is_not_planted(edit: AnyModelEdit, file: Path) -> None:
    with pytest.raises(NotPlantedError):
        edited(read(file), [edit])
