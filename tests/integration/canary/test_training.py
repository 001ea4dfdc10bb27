"""A canary's training: the same from a seed, however often it is killed, and never from a lie."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

REASON = "the trainer's packages come with the extra canary"
torch = pytest.importorskip("torch", reason=REASON)
transformers = pytest.importorskip("transformers", reason=REASON)
pytest.importorskip("safetensors", reason=REASON)
pytest.importorskip("PIL", reason=REASON)

from sparkbuild.canary.audit.records import Probe  # noqa: E402
from sparkbuild.canary.audit.summary import summarise  # noqa: E402
from sparkbuild.canary.catalogue import DATA, load_catalogue  # noqa: E402
from sparkbuild.canary.suite import Limits  # noqa: E402
from sparkbuild.canary.tasks import corpus, tokenizer  # noqa: E402
from sparkbuild.canary.train import card, checkpoint, checks, making, run  # noqa: E402
from sparkbuild.canary.train.batch import Batches, Room  # noqa: E402
from sparkbuild.canary.train.checks import Told  # noqa: E402
from sparkbuild.canary.train.loop import Schedule  # noqa: E402
from sparkbuild.canary.train.model import Model  # noqa: E402
from sparkbuild.canary.train.nets.glm5_next import Glm5Next, Shape  # noqa: E402
from sparkbuild.canary.train.nets.glm5v import Shape as TowerShape  # noqa: E402
from sparkbuild.canary.train.nets.glm5v import Tower  # noqa: E402
from sparkbuild.canary.train.reading import Plan  # noqa: E402
from sparkbuild.canary.train.recipes import RECIPES, Effort, Lessons, Recipe  # noqa: E402
from sparkbuild.canary.train.state import StateFile  # noqa: E402
from sparkbuild.errors import HostError, UnknownNameError  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor


CPU = torch.device("cpu")
SHORT = Room(name="short", rows=2, tokens=64, share=1.0, drafts=1)
SEE = Room(
    name="see", rows=1, tokens=64, share=1.0, pictures=1, picture_tokens=16, longest=16, drafts=1
)


class KilledError(Exception):
    """Stands for a kill: nothing behind it is done."""


def plain(steps: int = 3) -> Recipe:
    """The plain canary in tiny rooms."""
    effort = Effort(rooms=(SHORT,), schedule=Schedule(steps=steps, warm=2))
    return replace(RECIPES["llama"], cpu=effort)


def seeing() -> Recipe:
    """Noise in training, experts' balance, a tower with a warm-up: all that has a state."""

    def build(_: object) -> Model:
        shape = Shape(
            vocabulary=512,
            layers="KD",
            width=64,
            heads=2,
            linear_head=32,
            latent=32,
            rank=32,
            inner=64,
            expert=32,
        )
        tower = TowerShape(depth=1, width=64, inner=64, tokens=64, projector=64)
        return Model(Glm5Next(shape), Tower(tower))

    effort = Effort(
        rooms=(SEE,),
        schedule=Schedule(steps=4, warm=2),
        warm_up=Plan(steps=3, pictures=1, warm=1),
    )
    return replace(RECIPES["glm5-next"], build=build, cpu=effort)


def training(recipe: Recipe, out: Path, *, seed: int = 1, every: float = 0.0) -> run.Run:
    out.mkdir(exist_ok=True)
    return run.Run(
        recipe=recipe, effort=recipe.cpu, out=out, seed=seed, place=CPU, save_every=every
    )


def weights(folder: Path) -> dict[str, Tensor]:
    parts = [part for part in card.CHECKPOINT if (folder / part).is_dir()]
    return {
        f"{part} {name}": value
        for part in parts
        for name, value in checkpoint.load_tensors(folder / part).items()
    }


def same(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def killed_after(made: run.Run, saves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until so many states are written, then lose everything but the files."""
    plain_save = StateFile.save
    count = 0

    def save(self: StateFile, content: dict[str, object]) -> None:
        nonlocal count
        plain_save(self, content)
        count += 1
        if count == saves:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(StateFile, "save", save)
        with pytest.raises(KilledError):
            made(lambda _: None)
    torch.rand(5)  # another process has another state


@pytest.fixture(autouse=True)
def _few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_MOST", 1)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plain canary of seed 1."""
    out = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "_MOST", 1)
        training(plain(), out, every=60)(lambda _: None)
    return out


def test_a_seed_decides_every_weight_and_another_state_is_not_trusted(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = training(plain(), tmp_path, seed=2)
    killed_after(other, 2, monkeypatch)
    told: list[Told] = []
    training(plain(), tmp_path, seed=1)(told.append)
    assert same(first, tmp_path)
    assert [one.note for one in told if one.phase == "note"]
    aside = torch.load(tmp_path / "training.aside", weights_only=True)
    assert aside["step"] == 2
    ours = torch.load(tmp_path / "training.state", weights_only=True)
    assert not torch.equal(aside["model"]["net.norm.weight"], ours["model"]["net.norm.weight"])


def test_a_killed_run_goes_on_as_if_nothing_had_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = seeing()
    whole, killed = training(recipe, tmp_path / "whole"), training(recipe, tmp_path / "killed")
    whole(lambda _: None)
    # States: three of the warm-up, then four of the training; killed after the second of each.
    killed_after(killed, 2, monkeypatch)
    killed_after(killed, 3, monkeypatch)
    told: list[Told] = []
    trained = killed(told.append)
    assert same(whole.out, killed.out)
    assert not [one for one in told if one.phase == "note"]
    assert trained.vision is not None
    assert trained.card.losses == card.load_card(whole.out).losses


def test_a_damaged_state_is_put_aside(tmp_path: Path) -> None:
    state = tmp_path / "training.state"
    state.write_bytes(b"PK\x03\x04 no such thing")
    notes: list[str] = []
    assert StateFile(state, "key", note=notes.append).load(CPU) is None
    assert notes
    assert not state.exists()


@pytest.mark.parametrize("change", ["seed", "steps", "lessons", "code"])
def test_whatever_decides_the_weights_changes_the_key(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = plain()
    before = training(recipe, tmp_path).key
    other = training(recipe, tmp_path)
    if change == "seed":
        other = training(recipe, tmp_path, seed=3)
    elif change == "steps":
        other = training(plain(5), tmp_path)
    elif change == "lessons":
        other = training(replace(recipe, lessons=Lessons(hardest=0.1)), tmp_path)
    else:
        monkeypatch.setattr(run, "sha256_file", lambda file: file.name)
    assert other.key != before
    assert training(recipe, tmp_path).key == before or change == "code"


def test_a_finished_run_is_known_until_a_file_is_touched(first: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert training(plain(), out).finished(lambda _: None) is None
    shutil.copytree(first, out, dirs_exist_ok=True)
    trained = training(plain(), out).finished(lambda _: None)
    assert trained is not None
    assert training(plain(), out, seed=2).finished(lambda _: None) is None
    config = trained.text / "config.json"
    config.write_bytes(config.read_bytes() + b" ")
    assert training(plain(), out).finished(lambda _: None) is None


def test_the_checkpoint_is_what_transformers_reads(first: Path) -> None:
    model, keys = transformers.LlamaForCausalLM.from_pretrained(
        first / "text", dtype=torch.float32, output_loading_info=True
    )
    assert not any(keys[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert torch.isfinite(model(torch.tensor([[5, 6, 7]])).logits).all()
    assert card.load_card(first).parameters == model.num_parameters()


def test_the_card_says_what_was_done(first: Path) -> None:
    found = card.load_card(first)
    assert found.files.keys() == {
        f"text/{name}"
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    }
    assert sum(rate.of for rate in found.held_out.values()) == SHORT.rows
    assert found.architecture == "LlamaForCausalLM"
    assert sum(found.data[0].tasks.values()) == pytest.approx(1)
    assert found.losses["short answer"] > 0
    page = (first / card.PAGE).read_text()
    assert all(digest in page for digest in found.files.values())
    assert "trial" not in found.effort
    assert "trial" in RECIPES["llama"].note("cpu", RECIPES["llama"].cpu.shortened(3))


def test_an_audit_is_filled_in(first: Path, tmp_path: Path) -> None:
    for name in (card.CARD, card.PAGE):
        shutil.copy(first / name, tmp_path)
    probes = [
        Probe(
            key=target,
            role="model",
            target=target,
            kind="rolled",
            detail="",
            nmse={"a": 1.0},
            failed=failed,
        )
        for target, failed in (("blk.0.attn_q.weight", ("copy",)), ("blk.0.attn_k.weight", ()))
    ]
    limits = Limits(schema=1, bounds=())
    card.with_audit(tmp_path, summarise(probes, limits))
    found = card.load_card(tmp_path).audit
    assert found == card.Audit(
        made=2, counted=2, noticed=1, unnoticed=("blk.0.attn_k.weight rolled",)
    )
    assert "blk.0.attn_k.weight" in (tmp_path / card.PAGE).read_text()


def test_what_is_recorded_during_an_audit_is_not_lost(tmp_path: Path) -> None:
    audited = load_catalogue().canary("llama")
    shutil.copytree(DATA / "llama", tmp_path / "llama")
    assert audited.pytorch is not None
    compared = msgspec.structs.replace(audited.pytorch, longest=9999)
    making.enter(tmp_path, msgspec.structs.replace(audited, pytorch=compared))
    nothing = summarise([], Limits(schema=1, bounds=()))
    found = making.keep_audit(tmp_path, audited, nothing, backend="cpu", cache="f32")
    entry = found.canary("llama")
    assert entry.pytorch == compared
    assert entry.audit is not None
    assert entry.audit.made == 0


def test_known_facts_are_in_long_texts_alone_and_those_fit_their_rooms() -> None:
    recipe = RECIPES["glm5-next"]
    known = tokenizer.load(corpus.tokenizer_json())
    batches = Batches(recipe.gpu.rooms, recipe.lessons, known, seed=1, steps=1)
    for room in recipe.gpu.rooms:
        assert ("recall" in recipe.lessons.shares(room.name)) == (room.tokens > 200), room.name
        if not room.pictures:
            assert len(batches.drawn(room, random.Random(2), 1.0)) == room.rows  # noqa: S311


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError):
        run.train("glm6", tmp_path)
    if not torch.cuda.is_available():
        with pytest.raises(HostError):
            run.train("llama", tmp_path, device="cuda")
    assert not list(tmp_path.iterdir())
