"""What of a model's metadata can be set right, by what is known and not by guessing.

Each rule looks at a model as the rules before it leave it, and gives changes, or the fault that no
change mends where only a person can know the value. What is read, and under which names, is that
of llama.cpp b11434 (src/models/glm5-next.cpp, src/llama-vocab.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from sparkbuild.model.book import Architecture, Ending, book
from sparkbuild.model.checks.subject import block_of
from sparkbuild.model.checks.tokens import BY_TEXT, ENDS, GPT2_EOS, lost_ends
from sparkbuild.model.finding import Finding, listed
from sparkbuild.model.header import Scalar
from sparkbuild.model.mend.edits import Edit, Put, Rename, Resize, edited
from sparkbuild.model.read import Model

Rule = Callable[[Model], Iterator[Edit | Finding]]

_ARCHITECTURE: Final = "general.architecture"
_GATE: Final = "kda.gate_lower_bound"
_KPOOL: Final = "attention.indexer.kpool"
_TOP_K: Final = "attention.indexer.top_k"
_BIAS: Final = re.compile(r"^blk\.\d+\.indexer_compressor_ape\.weight$")
_OTHERS: Final = "as all others"


def repair(model: Model) -> tuple[tuple[Edit, ...], tuple[Finding, ...]]:
    """Every change that the rules ask for, in order, and the faults that stay."""
    edits: list[Edit] = []
    faults: list[Finding] = []
    for rule in RULES:
        told = tuple(rule(model))
        new = [one for one in told if not isinstance(one, Finding)]
        faults += [one for one in told if isinstance(one, Finding)]
        edits += new
        model = edited(model, new) if new else model
    return tuple(edits), tuple(faults)


def architecture(model: Model) -> Iterator[Edit | Finding]:
    """A name from before the merge becomes upstream's, with the keys that begin with it."""
    old = model.architecture
    twin = book().twin_of("architecture", old)
    if twin is None or old == twin.names[0]:
        return
    new = twin.names[0]
    below = [key for key in model.values if key.startswith(f"{old}.")]
    twice = [key for key in below if new + key[len(old) :] in model.values]
    if twice:
        yield Finding(
            name="keys",
            state="fault",
            expected=f"keys that begin with {old} or with {new}",
            found=f"both, such as {twice[0]}",
            reason="which of the two is meant, the file does not say",
            next_step="take another file: this one was changed by a program that left both",
        )
        return
    yield Put(key=_ARCHITECTURE, value=new, was=old, reason=f"llama.cpp calls it {new}")
    if below:
        reason = "keys begin with the architecture's name"
        yield Rename(key=f"{old}.", to=f"{new}.", keys=len(below), reason=reason)
    if f"{old}.{_GATE}" not in below and f"{new}.{_GATE}" not in model.values:
        yield _unknown(
            f"{new}.{_GATE}",
            "without it llama.cpp takes another gate for the linear attention, and says nothing",
            "linear_attn_config.gate_lower_bound",
            "float:N",
        )


def arrays(model: Model) -> Iterator[Edit | Finding]:
    """Arrays with an entry for each block have that many, the NextN blocks counted."""
    known = book().known(model.architecture)
    blocks = model.number(model.key("block_count")) or 0
    nextn = model.number(model.key("nextn_predict_layers")) or 0
    if known is None or not known.nextn or not 0 <= nextn < blocks:
        return
    for name in (*known.nextn, *known.trunk):
        key = model.key(name)
        value = model.values.get(key)
        if isinstance(value, tuple) and value and not isinstance(value[0], str):
            yield from _length(model, known, key, value, blocks - nextn, blocks)


def _length(
    model: Model, known: Architecture, key: str, value: tuple[Scalar, ...], trunk: int, blocks: int
) -> Iterator[Edit]:
    name = key.removeprefix(f"{model.architecture}.")
    length = len(value)
    fill = known.nextn.get(name)
    if name in known.trunk:
        if length == blocks != trunk:
            reason = "llama.cpp asks this of the trunk alone"
            yield Resize(key=key, length=trunk, was=length, reason=reason)
    elif length == trunk != blocks:
        if fill == _OTHERS and len(set(value)) > 1:
            return
        told = value[0] if isinstance(fill, str | None) else type(value[0])(fill)
        reason = f"llama.cpp asks for the NextN block as well, which has {told}"
        yield Resize(key=key, length=blocks, was=length, fill=told, reason=reason)
    elif length > blocks and not model.missing and not _above(model, blocks):
        reason = f"the file has {blocks} blocks"
        yield Resize(key=key, length=blocks, was=length, reason=reason)


def _above(model: Model, blocks: int) -> bool:
    """Whether a tensor is of a block that ``block_count`` does not count."""
    return any((block_of(tensor) or 0) >= blocks for tensor in model.tensors.values())


def kpool(model: Model) -> Iterator[Edit | Finding]:
    """The indexer's pool is as large as its position bias has rows, one for each member."""
    known = book().known(model.architecture)
    key = model.key(_KPOOL)
    if known is None or _KPOOL not in known.required or model.number(key) is not None:
        return
    rows = {t.shape[1] for t in model.tensors.values() if _BIAS.match(t.name) and len(t.shape) > 1}
    top = model.number(model.key(_TOP_K)) or 0
    if len(rows) == 1 and (size := rows.copy().pop()) > 1 and top % size == 0:
        reason = f"llama.cpp demands it; indexer_compressor_ape has {size} rows"
        yield Put(key=key, value=size, reason=reason)
    else:
        told = f"indexer_compressor_ape has {listed(sorted(map(str, rows))) or 'no'} rows"
        yield _unknown(key, f"llama.cpp refuses the file; {told}", "index_kpool", "int:N")


def ends(model: Model) -> Iterator[Edit | Finding]:
    """Each token that ends a turn in a family is eos, eot or eom."""
    tokens = model.texts("tokenizer.ggml.tokens") or ()
    held = {name: model.number(_end(name)) for name in ENDS}
    for ending in book().ending:
        if not set(ending.tokens) <= set(tokens):
            continue
        if held["eos"] is None and ending.eos in tokens:
            end = held["eos"] = tokens.index(ending.eos)
            reason = f"without it llama.cpp takes token {GPT2_EOS} for the end of a text"
            yield Put(key=_end("eos"), value=end, reason=reason)
        named = {number for number in held.values() if number is not None}
        for text, number in lost_ends(tokens, ending, named).items():
            name = _place(text, ending, held, tokens)
            if name:
                was = "" if held[name] is None else str(held[name])
                held[name] = number
                yield Put(key=_end(name), value=number, was=was, reason=f"{text} ends a turn too")


def _place(
    text: str, ending: Ending, held: dict[str, int | None], tokens: tuple[str, ...]
) -> str | None:
    """Where an end token goes: its own place, one that is free, or one that needs no naming."""
    own = ENDS[1 + ending.tokens.index(text)]

    def spare(name: str) -> bool:
        number = held[name]
        if number is None or number == held["eos"]:
            return True
        return 0 <= number < len(tokens) and tokens[number] in BY_TEXT

    return next((name for name in sorted(ENDS[1:], key=lambda n: n != own) if spare(name)), None)


def _end(name: str) -> str:
    return f"tokenizer.ggml.{name}_token_id"


def projector(model: Model) -> Iterator[Edit | Finding]:
    """The same of an mmproj: its projector's name, and what goes with that."""
    for key in ("clip.projector_type", "clip.vision.projector_type"):
        name = model.text(key) or ""
        twin = book().twin_of("projector", name)
        if twin and name != twin.names[0]:
            reason = f"llama.cpp calls it {twin.names[0]}"
            yield Put(key=key, value=twin.names[0], was=name, reason=reason)


def picture(model: Model) -> Iterator[Edit | Finding]:
    """Keys of the projector that files from elsewhere name otherwise, or leave to their code."""
    name = model.text("clip.projector_type") or model.text("clip.vision.projector_type") or ""
    known = book().projects(name)
    if known is None or model.architecture != "clip":
        return
    for old, new in known.renamed.items():
        if old in model.values and new not in model.values:
            yield Rename(key=old, to=new, reason="llama.cpp calls it so")
    side = model.number("clip.vision.patch_size") or 0
    side *= model.number("clip.vision.spatial_merge_size") or 2  # clip.cpp's own for this projector
    for bound, tokens in zip(("min", "max"), known.picture or (), strict=False):
        key = f"clip.vision.image_{bound}_pixels"
        pixels = tokens * side**2
        if key not in model.values and 0 < pixels < 1 << 31:
            reason = f"llama.cpp demands it: {tokens} tokens of {side} x {side} pixels"
            yield Put(key=key, value=pixels, reason=reason)


def _unknown(key: str, reason: str, config: str, kind: str) -> Finding:
    """The fault that a number is missing which only the model's own configuration tells."""
    return Finding(
        name=key,
        state="fault",
        expected="a number",
        found="none, and no tensor tells it",
        reason=reason,
        next_step=f"convert the model again: upstream's converter takes it from {config} in "
        f"config.json; or build vision-mtp and serve the file as it is with --override-kv {key}="
        f"{kind}, N from there",
    )


RULES: Final[tuple[Rule, ...]] = (architecture, arrays, kpool, ends, projector, picture)
"""In order: what comes later goes by upstream's names."""
