"""GGUF files are read, rewritten, derived and spoilt, and what is wrong with them is told."""

import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from sparkbuild import process
from sparkbuild.canary.gguf import derive as derive_module
from sparkbuild.canary.gguf.convert import convert
from sparkbuild.canary.gguf.derive import Derived, Form, FormRecord, derive
from sparkbuild.canary.gguf.layout import TYPES, Tensor, layout
from sparkbuild.canary.gguf.rewrite import graft, rewrite, select, widen
from sparkbuild.canary.gguf.spoil import Spoil, spoils, spoilt
from sparkbuild.canary.gguf.typemap import (
    MIX,
    PLAIN,
    load_map,
    missing_types,
    quantised_types,
)
from sparkbuild.canary.gguf.weights import all_weights, dequantised, nmse
from sparkbuild.canary.train.mixing import check_complete
from sparkbuild.errors import CanaryError, ManifestError
from sparkbuild.files import sha256_file
from sparkbuild.process import Finished

RNG = np.random.default_rng(5)
WEIGHTS = {
    "token_embd.weight": RNG.normal(size=(16, 256)),
    "blk.0.attn_norm.weight": 1 + 0.1 * RNG.normal(size=256),
    "blk.0.hc_attn_fn.weight": RNG.normal(size=(24, 256)),
    "blk.0.ffn_up.weight": RNG.normal(size=(16, 256)),
    "blk.0.ffn_up_exps.weight": RNG.normal(size=(2, 16, 256)),
    "output.weight": RNG.normal(size=(16, 256)),
}
KEPT = {"blk.0.attn_norm.weight": "f32", "blk.0.hc_attn_fn.weight": "f16"}
MAP = """
schema = 1
architecture = "toy"
default = "q8_0"
[tensors]
"blk.0.ffn_up.weight" = "q4_0"
"blk.0.ffn_up_exps.weight" = "q5_1"
"""


def quantised(values: NDArray[Any], kind: str) -> NDArray[Any]:
    number = gguf.GGMLQuantizationType(TYPES[kind][0])
    return np.asarray(gguf.quants.quantize(values.astype(np.float32), number))


@pytest.fixture
def master(tmp_path: Path) -> Path:
    path = tmp_path / "toy.gguf"
    writer = gguf.GGUFWriter(path, "toy")
    writer.add_file_type(7)
    writer.add_uint32("toy.expert_used_count", 2)
    writer.add_float32("toy.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_array("toy.rope.dimension_sections", [6, 5, 5, 0])
    writer.add_bool("toy.expert_weights_norm", val=True)
    writer.add_token_list(["a", "ü"])
    for name, values in WEIGHTS.items():
        kind = KEPT.get(name, "q8_0")
        raw = gguf.GGMLQuantizationType(TYPES[kind][0])
        data = values.astype({"f32": np.float32, "f16": np.float16}.get(kind, np.float32))
        if kind == "q8_0":
            writer.add_tensor(name, quantised(values, kind), raw_dtype=raw)
        else:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_layout_is_what_gguf_py_reads(master: Path) -> None:
    found, reader = layout(master), gguf.GGUFReader(master)
    assert found.architecture == "toy"
    assert found.fields["tokenizer.ggml.tokens"].value == ("a", "ü")
    assert found.fields["toy.rope.dimension_sections"].value == (6, 5, 5, 0)
    assert [t.name for t in reader.tensors] == list(found.tensors)
    for tensor in reader.tensors:
        mine = found.tensors[tensor.name]
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
        assert (mine.offset, mine.bytes) == (tensor.data_offset, tensor.n_bytes)
        assert mine.type == tensor.tensor_type.name.lower()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: b"GGUX" + data[4:], "does not begin with GGUF"),
        (lambda data: data[:4] + struct.pack("<I", 2) + data[8:], "version 2, expected 3"),
        (lambda data: data[:-64], "the tensors need"),
        (lambda data: data[:200], "ends in the middle of a string"),
        (lambda data: b"", "does not begin with GGUF"),
    ],
)
def test_what_is_no_whole_gguf_is_refused(
    master: Path, damage: Callable[[bytes], bytes], told: str
) -> None:
    master.write_bytes(damage(master.read_bytes()))
    with pytest.raises(CanaryError, match=r"toy\.gguf is not a GGUF file") as caught:
        layout(master)
    assert told in caught.value.problems[0]


def test_blocks_of_signs_and_of_two_bits_are_read_as_ggml_common_defines_them() -> None:
    scale = struct.pack("<e", 0.5)
    signs = dequantised(np.frombuffer(scale + b"\x05" + bytes(15), np.uint8)[None], "q1_0")
    assert signs.shape == (1, 128)
    assert signs[0, :4].tolist() == [0.5, -0.5, 0.5, -0.5]
    pairs = dequantised(np.frombuffer(scale + b"\xe4" + bytes(15), np.uint8)[None], "q2_0")
    assert pairs.shape == (1, 64)
    assert pairs[0, :5].tolist() == [-0.5, 0.0, 0.5, 1.0, -0.5]


def test_sizes_of_blocks_agree_with_gguf_py() -> None:
    known = {kind.name.lower(): kind for kind in gguf.GGMLQuantizationType}
    compared = 0
    for name, (number, block, size) in TYPES.items():
        if name in known:
            assert known[name].value == number
            assert gguf.GGML_QUANT_SIZES[known[name]] == (block, size)
            compared += 1
    assert compared >= 26


def test_a_widened_file_holds_the_same_weights_and_metadata(master: Path, tmp_path: Path) -> None:
    wide = widen(master, tmp_path / "wide.gguf")
    before, after = layout(master), layout(wide)
    assert {t.type for t in after.tensors.values()} == {"f32"}
    assert after.fields.keys() == before.fields.keys()
    assert after.fields["general.file_type"].value == 0
    for (_, old), (_, new) in zip(all_weights(master), all_weights(wide), strict=True):
        np.testing.assert_array_equal(old, new)
    assert gguf.GGUFReader(wide).tensors[0].name == next(iter(WEIGHTS))


def fake_quantiser(
    change: Callable[[str, bytes], bytes] = lambda _, data: data, says: Sequence[str] = ()
) -> Callable[..., Finished]:
    """What llama-quantize does, by gguf-py; ``change`` is its fault."""

    def run(argv: Sequence[str], *, cwd: Path, on_line: Any, log: Path, env: Any) -> Finished:
        *flags, source, target, kind = argv
        wanted = {}
        if "--tensor-type-file" in flags:
            lines = (cwd / flags[flags.index("--tensor-type-file") + 1]).read_text().split()
            wanted = dict(line.split("=") for line in lines)
        found = layout(cwd / source)
        values = dict(zip(found.tensors, (w for _, w in all_weights(cwd / source)), strict=True))

        def made(tensor: Tensor) -> tuple[str, bytes]:
            if tensor.type in PLAIN:
                return tensor.type, change(tensor.name, values[tensor.name].astype("<f2").tobytes()
                                           if tensor.type == "f16"
                                           else values[tensor.name].tobytes())  # fmt: skip
            named = [t for pattern, t in wanted.items() if re.search(pattern, tensor.name)]
            to = named[0] if named else kind.lower()
            return to, change(tensor.name, quantised(values[tensor.name], to).tobytes())

        rewrite(found, cwd / target, found.tensors.values(), made)
        for line in says:
            on_line(line)
        return Finished(argv=tuple(argv), returncode=0, seconds=0.0, tail="")

    return run


@pytest.fixture
def make(master: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Derived]:
    (tmp_path / "bin").mkdir()
    quantiser = tmp_path / "bin/llama-quantize"
    quantiser.touch()
    types = tmp_path / "map.toml"
    types.write_text(MAP)

    def made(
        form: Form,
        run: Callable[..., Finished],
        record: FormRecord | None = None,
        premade: Path | None = None,
    ) -> Derived:
        monkeypatch.setattr(process, "run", run)
        return derive(
            master, form, quantiser=quantiser, folder=tmp_path / "forms", record=record,
            log=tmp_path / "log", types=types, premade=premade,
        )  # fmt: skip

    return made


def never(*_: Any, **__: Any) -> Finished:
    raise AssertionError("it was made already")


def test_a_form_is_made_once_and_known_by_its_digest(make: Callable[..., Derived]) -> None:
    first = make("mix", fake_quantiser())
    assert first.how == "not recorded"
    assert first.content.types == {"q4_0": 1, "q5_1": 1}
    assert 0 < first.content.errors["q5_1"] < first.content.errors["q4_0"] < 0.02
    again = make("mix", never, FormRecord(digests=(first.sha256,)))
    assert again.how == "same bytes"
    assert again.path == first.path


def test_a_damaged_file_in_the_cache_is_made_again(make: Callable[..., Derived]) -> None:
    first = make("f16", fake_quantiser())
    first.path.write_bytes(first.path.read_bytes()[:-1] + b"\x55")
    assert make("f16", fake_quantiser()).sha256 == first.sha256


def test_other_rounding_is_the_same_within_the_margin(make: Callable[..., Derived]) -> None:
    first = make("mix", fake_quantiser())
    record = FormRecord(digests=("0" * 64,), errors=first.content.errors)
    assert make("mix", never, record).how == "same within rounding"
    tighter = {kind: error / 1.2 for kind, error in first.content.errors.items()}
    with pytest.raises(CanaryError, match="made a wrong toy-mix") as caught:
        make("mix", never, FormRecord(errors=tighter))
    assert any(problem.startswith("q4_0: NMSE") for problem in caught.value.problems)


def test_a_form_of_which_nothing_is_recorded_is_no_match(make: Callable[..., Derived]) -> None:
    with pytest.raises(CanaryError, match="made a wrong") as caught:
        make("f16", fake_quantiser(), FormRecord())
    assert "nothing is recorded for the type" in caught.value.problems[1]


def rolled(name: str, data: bytes) -> bytes:
    return data[18 * 8 :] + data[: 18 * 8] if name == "blk.0.ffn_up.weight" else data


def flipped(name: str, data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:] if name == "blk.0.hc_attn_fn.weight" else data


def test_a_quantiser_that_mixes_up_rows_is_refused(make: Callable[..., Derived]) -> None:
    good = make("mix", fake_quantiser()).content.errors
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derive_module, "_known", lambda _: None)
        with pytest.raises(CanaryError, match="made a wrong") as caught:
            make("mix", fake_quantiser(rolled), FormRecord(errors=good))
    assert len(caught.value.problems) == 2


def test_a_quantiser_that_changes_what_it_should_copy_is_refused(
    make: Callable[..., Derived],
) -> None:
    with pytest.raises(CanaryError, match="is not the form mix of toy") as caught:
        make("mix", fake_quantiser(flipped))
    assert caught.value.problems == (
        "blk.0.hc_attn_fn.weight: differs from the master, whose type it has",
    )


def test_a_silent_fallback_is_refused(make: Callable[..., Derived]) -> None:
    line = "warning: blk.0.x - ncols 100 not divisible by 256 -> falling back to q5_0"
    with pytest.raises(CanaryError, match=r"did not make toy-mix\.gguf as asked") as caught:
        make("mix", fake_quantiser(says=["fine", line]))
    assert caught.value.problems == (line,)


def test_a_type_that_nobody_asked_for_is_refused(
    make: Callable[..., Derived], tmp_path: Path
) -> None:
    ignores = fake_quantiser()

    def deaf(argv: Sequence[str], **rest: Any) -> Finished:
        return ignores([a for a in argv if a != "--tensor-type-file"], **rest)

    with pytest.raises(CanaryError, match="is not the form mix") as caught:
        make("mix", deaf)
    assert "blk.0.ffn_up.weight: expected q4_0" in caught.value.problems[0]


def test_a_map_for_another_model_is_refused(make: Callable[..., Derived], tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(MAP.replace('"toy"', '"other"').replace("ffn_up.", "ffx."))
    with pytest.raises(CanaryError, match="for another model") as caught:
        make("mix", never)
    assert caught.value.problems == (
        "architecture: expected other, found toy",
        "the model has no tensor blk.0.ffx.weight",
    )


def test_premade_tensors_are_taken_as_they_are(
    make: Callable[..., Derived], tmp_path: Path
) -> None:
    whole = make("mix", fake_quantiser())
    given = select(whole.path, tmp_path / "given.gguf", ["q4_0"])
    assert list(layout(given).tensors) == ["blk.0.ffn_up.weight"]
    asked: list[str] = []
    inner = fake_quantiser()

    def run(argv: Sequence[str], *, cwd: Path, **rest: Any) -> Finished:
        asked.append((cwd / "types.txt").read_text())
        return inner(argv, cwd=cwd, **rest)

    again = make("mix", run, FormRecord(digests=(whole.sha256,)), given)
    assert again.how == "same bytes"
    assert "ffn_up\\.weight" not in asked[0]


def test_a_graft_changes_nothing_else(master: Path, tmp_path: Path) -> None:
    wide = widen(master, tmp_path / "wide.gguf")
    given = select(wide, tmp_path / "given.gguf", ["f32"])
    grafted = graft(master, given, tmp_path / "grafted.gguf")
    assert {t.type for t in layout(grafted).tensors.values()} == {"f32"}
    assert layout(grafted).fields == layout(master).fields


def test_the_mix_holds_every_known_type_on_dense_and_on_expert_matrices() -> None:
    types = load_map(MIX)
    kinds = set(TYPES) - PLAIN
    dense = {kind for name, kind in types.tensors.items() if "_exps" not in name}
    experts = {kind for name, kind in types.tensors.items() if "_exps" in name}
    assert kinds <= dense
    assert kinds <= experts
    # The draft block's experts are loaded by no graph of today: Q8_0 alone may rest on them.
    used = {k for n, k in types.tensors.items() if "_exps" in n and not n.startswith("blk.9.")}
    assert kinds - used == {"q8_0"}


def test_missing_types_are_named_for_dense_and_expert_matrices(
    make: Callable[..., Derived],
) -> None:
    found = layout(make("mix", fake_quantiser()).path)
    assert missing_types(found, frozenset({"q4_0", "q5_1", "q8_0"})) == [
        "no dense matrix is q5_1",
        "no expert matrix is q4_0",
        "no expert matrix is q8_0",
    ]


def test_a_mix_that_lacks_a_type_of_the_tree_is_refused(
    make: Callable[..., Derived], tmp_path: Path
) -> None:
    header = tmp_path / "ggml/include/ggml.h"
    header.parent.mkdir(parents=True)
    mix = make("mix", fake_quantiser()).path
    header.write_text("enum ggml_type {\n GGML_TYPE_F16 = 1,\n};\n")
    check_complete(mix, tmp_path)
    header.write_text("enum ggml_type {\n GGML_TYPE_Q4_0 = 2,\n GGML_TYPE_NEW7 = 77,\n};\n")
    with pytest.raises(CanaryError, match="every quantised type") as caught:
        check_complete(mix, tmp_path)
    assert "no dense matrix is new7" in caught.value.problems


def test_types_of_a_tree_are_its_enumeration_without_activations(tmp_path: Path) -> None:
    header = tmp_path / "ggml.h"
    header.write_text(
        "enum ggml_type {\n GGML_TYPE_F32 = 0,\n GGML_TYPE_Q4_0 = 2,\n"
        "// GGML_TYPE_Q4_2 = 4, support has been removed\n GGML_TYPE_Q8_1 = 9,\n"
        " GGML_TYPE_NEW7 = 77, // better\n GGML_TYPE_I32 = 26,\n GGML_TYPE_COUNT = 78,\n};\n"
    )
    assert quantised_types(header) == {"q4_0", "new7"}


def test_a_map_with_an_unknown_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text(MAP.replace("q4_0", "q4_9"))
    with pytest.raises(ManifestError, match="unknown type 'q4_9'"):
        load_map(path)


@pytest.fixture
def wide(master: Path, tmp_path: Path) -> Path:
    return widen(master, tmp_path / "wide.gguf")


def test_every_tensor_and_hyper_parameter_is_spoilt_and_restored(wide: Path) -> None:
    healthy = sha256_file(wide)
    listed = spoils(wide)
    assert {s.target for s in listed if s.kind != "changed"} == set(WEIGHTS)
    changed = {s.target: s.detail for s in listed if s.kind == "changed"}
    assert changed == {
        "toy.attention.layer_norm_rms_epsilon": "1e-05 to 0.01",
        "toy.expert_used_count": "2 to 1",
        "toy.expert_weights_norm": "True to False",
        "toy.rope.dimension_sections": "[6, 5, 5, 0] to [5, 5, 0, 6]",
    }
    digests = set()
    for spoil in listed:
        with spoilt(wide, spoil):
            digests.add(sha256_file(wide))
        assert sha256_file(wide) == healthy, spoil
    assert len(digests - {healthy}) == len(listed)


def test_what_perturbations_do(wide: Path) -> None:
    name = "blk.0.ffn_up.weight"
    before = {t.name: w.copy() for t, w in all_weights(wide)}[name]

    def after(kind: str) -> NDArray[Any]:
        with spoilt(wide, Spoil(target=name, kind=kind, detail="")):  # type: ignore[arg-type]
            return {t.name: w.copy() for t, w in all_weights(wide)}[name]

    np.testing.assert_array_equal(after("rolled"), np.roll(before, 7, axis=0))
    np.testing.assert_array_equal(after("negated"), -before)
    np.testing.assert_allclose(after("scaled"), 0.9 * before, rtol=1e-6)
    zeroed = after("zeroed")
    assert not zeroed[8].any()
    np.testing.assert_array_equal(np.delete(zeroed, 8, 0), np.delete(before, 8, 0))


def test_a_file_is_restored_when_the_run_fails(wide: Path) -> None:
    healthy = sha256_file(wide)
    with pytest.raises(KeyboardInterrupt), spoilt(wide, spoils(wide)[0]):
        raise KeyboardInterrupt
    assert sha256_file(wide) == healthy


def test_only_float32_files_are_spoilt(master: Path) -> None:
    with pytest.raises(CanaryError, match="is no float32 file"):
        spoils(master)


def test_a_target_that_is_not_there_is_refused(wide: Path) -> None:
    with (
        pytest.raises(CanaryError, match=r"nothing to be spoilt as blk\.7\.x rolled"),
        spoilt(wide, Spoil(target="blk.7.x", kind="rolled", detail="")),
    ):
        pass


def test_nmse_of_nan_is_nan_and_of_the_same_is_nothing() -> None:
    values = np.array([1.0, 2.0, 4.0])
    assert nmse(values, values) == 0
    assert np.isnan(nmse(np.array([1.0, np.nan, 4.0]), values))
    assert nmse(np.full(3, 2.0), np.full(3, 1.0)) == 1
    assert nmse(np.ones(3), np.zeros(3)) == np.inf


def test_a_folder_without_a_converter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CanaryError, match=r"is no llama\.cpp tree"):
        convert(tmp_path, tmp_path, tmp_path / "x", kind="text", outtype="f16", log=tmp_path / "l")


@pytest.mark.parametrize("fails", [False, True])
def test_the_converter_runs_with_the_named_pre_tokenizer_or_tells_its_log(
    tmp_path: Path, *, fails: bool
) -> None:
    tree = tmp_path / "tree"
    (tree / "conversion").mkdir(parents=True)
    (tree / "conversion/__init__.py").touch()
    (tree / "conversion/base.py").write_text("class TextModel: pass\n")
    (tree / "convert_hf_to_gguf.py").write_text(
        "import pathlib, sys\nfrom conversion.base import TextModel\n"
        "pre = TextModel().get_vocab_base_pre(None)\n"
        f"sys.exit('no such architecture') if {fails} else None\n"
        "out = sys.argv[sys.argv.index('--outfile') + 1]\n"
        "pathlib.Path(out).write_text(pre + ' ' + ' '.join(a for a in sys.argv[1:] if a != out))\n"
    )
    out = tmp_path / "out/model.gguf"

    def made() -> Path:
        return convert(
            tmp_path / "ckpt", tree, out, kind="mmproj", outtype="f32", log=tmp_path / "log"
        )

    if fails:
        with pytest.raises(CanaryError, match="the converter of tree failed") as caught:
            made()
        assert "no such architecture" in caught.value.detail
        assert not out.exists()
    else:
        assert made().read_text().startswith(f"glm4 {tmp_path / 'ckpt'} --outfile --outtype f32")
    assert list(tree.rglob("*.pyc")) == []
    assert list(out.parent.glob(".*")) == []
