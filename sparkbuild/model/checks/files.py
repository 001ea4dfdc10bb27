"""Files: are all shards there, whole, and in order."""

from __future__ import annotations

from collections.abc import Iterator

from sparkbuild.model.checks.subject import Subject
from sparkbuild.model.finding import Finding, listed, not_asked, shown
from sparkbuild.model.header import padded
from sparkbuild.model.read import Model, Shard

_DOWNLOAD = "download what is missing or short again"


def shards(subject: Subject) -> Finding:
    """All shards are beside the first, each is the one that its name says, none has too much."""
    return _shards("shards", subject.model)


def sizes(subject: Subject) -> Finding:
    """Every file is as long as its tensors need: a download that broke off is not."""
    return _sizes("file sizes", subject.model)


def table(subject: Subject) -> Finding:
    """Tensors lie one after another, as llama.cpp demands."""
    return _table("tensor table", subject.model)


def vision_file(subject: Subject) -> Finding:
    """The same three of the mmproj."""
    vision = subject.vision
    if vision is None:
        return not_asked("mmproj file")
    looks = (_shards, _sizes, _table)
    found = [look("mmproj file", vision) for look in looks]
    return next((finding for finding in found if finding.state != "ok"), found[1])


def _shards(name: str, model: Model) -> Finding:
    count = model.shards[0].split("count") or 1
    wrong = list(_wrong_shards(model, count))
    total = sum(shard.size for shard in model.shards)
    return Finding(
        name=name,
        state="fault" if wrong else "ok",
        expected=f"{count} file{'s' if count > 1 else ''}",
        found=listed(wrong) if wrong else f"{len(model.shards)}, {total:,} bytes",
        reason="llama.cpp finds shards by the first one's name and refuses a set that is not whole"
        if wrong
        else "",
        next_step=_DOWNLOAD if wrong else "",
    )


def _wrong_shards(model: Model, count: int) -> Iterator[str]:
    if count > 1 and not model.missing and len(model.shards) == 1:
        yield (
            f"{model.path.name}, whose header says {count} shards: expected a name that ends in "
            f"-00001-of-{count:05d}.gguf"
        )
        return
    stated = len(model.shards) + len(model.missing)
    if count != stated:
        yield f"{model.path.name} says {count} shards, another one {stated}"
    for path in model.missing:
        yield f"{path.name} is missing"
    if count == 1:
        return
    for shard in model.shards:
        number = int(shard.path.name[-len("00001-of-00001.gguf") :][:5]) - 1
        if shard.split("no") != number:
            yield f"{shard.path.name}: expected split.no {number}, found {shard.split('no')}"
    held = sum(len(shard.header.tensors) for shard in model.shards)
    if held != len(model.tensors):
        yield f"{held - len(model.tensors)} tensors are in more than one shard"
    announced = model.shards[0].split("tensors.count")
    if not model.missing and announced != held:
        yield f"expected {announced} tensors (split.tensors.count), found {held}"


def _sizes(name: str, model: Model) -> Finding:
    short = [_short(shard) for shard in model.shards if shard.size < shard.needed]
    more = [shard for shard in model.shards if shard.size > shard.whole]
    needed = sum(shard.needed for shard in model.shards)
    total = sum(shard.size for shard in model.shards)
    finding = Finding(
        name=name, state="ok", expected=f"at least {needed:,} bytes", found=f"{total:,} bytes"
    )
    if short:
        return Finding(
            name=name,
            state="fault",
            expected=finding.expected,
            found=listed(short),
            reason="the file ends before its tensors do: a download broke off, or a disk ran full",
            next_step=_DOWNLOAD,
        )
    if more:
        extra = [
            f"{shard.path.name}: {shard.size - shard.whole:,} bytes too many" for shard in more
        ]
        return Finding(
            name=name,
            state="note",
            expected=finding.expected,
            found=listed(extra),
            reason="nothing of the model is there; llama.cpp does not look",
        )
    return finding


def _short(shard: Shard) -> str:
    lacking = shard.needed - shard.size
    return f"{shard.path.name}: {shard.size:,} bytes, {lacking:,} of {shard.needed:,} lack"


def _table(name: str, model: Model) -> Finding:
    wrong = [problem for shard in model.shards for problem in _gaps(shard)]
    return Finding(
        name=name,
        state="fault" if wrong else "ok",
        expected="tensors one after another, aligned",
        found=listed(wrong) if wrong else f"{len(model.tensors)} tensors",
        reason="llama.cpp refuses a table whose offsets are not the sum of what stands before"
        if wrong
        else "",
        next_step="download the file again; if it stays so, make it again" if wrong else "",
    )


def _gaps(shard: Shard) -> Iterator[str]:
    expected: int | None = 0
    for tensor in shard.header.tensors:
        if expected is not None and tensor.offset != expected:
            yield f"{shown(tensor.name)}: expected offset {expected}, found {tensor.offset}"
            return
        # A type that is not known here has no size here; another check names it.
        expected = (
            None
            if tensor.bytes is None
            else padded(tensor.offset + tensor.bytes, shard.header.alignment)
        )
