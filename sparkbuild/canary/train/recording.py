"""Record a canary's suite: try it with more than is kept, keep what every healthy form gets right.

Numbers come from llama-server on float32 weights with a float32 cache; those of prompts that the
Q8_0 form moves far are not kept, since near ties in them would turn on any healthy build too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from sparkbuild.canary.drafts import acceptance, unasked
from sparkbuild.canary.forms import EXACT
from sparkbuild.canary.gguf.derive import derive
from sparkbuild.canary.gguf.rewrite import widen
from sparkbuild.canary.model import BEHAVIOUR, LOG, CanaryReport, Item
from sparkbuild.canary.record import Book
from sparkbuild.canary.run import Setup, canary, served
from sparkbuild.canary.suite import LIMITS, Drafted, Numbers, Prompt, Suite, load_suite
from sparkbuild.canary.tasks import corpus, tokenizer
from sparkbuild.canary.tasks.chat import render
from sparkbuild.canary.tasks.drawing import array
from sparkbuild.canary.tasks.sample import Sample
from sparkbuild.canary.train.exam import ANSWERS, Exam, Question
from sparkbuild.canary.train.nets.glm5v import token_count
from sparkbuild.errors import CanaryError
from sparkbuild.files import write_atomic
from sparkbuild.llama.client import Api

LEAST: Final = 40
"""Fixed questions that a canary has to answer rightly in every healthy form."""
Kind = Literal["master", "mix"]
DEPTH: Final = 3
"""Tokens drafted at a time where drafts are recorded: the deepest chain that is trained."""
POSITIONS: Final = 4
"""Generated positions of a reference: the prompt's end and what the cache gave afterwards."""
STEADY: Final = {"master": 2e-3, "mix": 1e-2}
"""NMSE that the coarsest form may have on a reference. Q8_0's rounding of activations is a hundred
times float16's, and most prompts stay below 5e-4 with it; above is a near tie somewhere."""
_SPARE: Final = 24
"""Tokens that an answer may have more than it should, so that a wrong one shows."""
_SOURCES: Final = 3
"""Candidates for every reference that is wanted."""
_OPEN: Final = b"""schema = 1
[[bounds]]
worst = 1e9
median = 1e9
reason = "recording: everything is only measured"
"""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The build and the files that are recorded with; ``setup.model`` is the master (Q8_0)."""

    setup: Setup
    quantiser: Path
    workdir: Path


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The suite, and by group how many questions were right of how many tried, before choosing."""

    suite: Suite
    rates: dict[str, tuple[int, int]]
    moved: dict[str, float]
    """NMSE of the coarsest form by reference, before choosing."""
    missed: tuple[Item, ...]
    """Fixed questions that some form did not answer rightly, and are not asked therefore."""


def record(
    name: str,
    exam: Exam,
    bench: Bench,
    out: Path,
    *,
    kind: Kind = "master",
    tell: Callable[[str], None],
) -> Recorded:
    """Record ``name``'s suite into ``out``, which must have or get its limits by hand.

    ``kind`` is what the numbers are of: the master's weights, or those of the form ``mix``, which
    has a suite of its own. Raises CanaryError where a fixed question is not answered rightly by
    the master.
    """
    entries = list(exam.questions())
    book = Book(name, vocabulary=tokenizer.VOCABULARY, context=_context(entries))
    for question, _, _ in entries:
        count = _count(question.sample)
        book.ask(question.name, question.group, question.sample, count=count, forms=question.forms)
    exact, others = _setups(bench, kind)
    with tempfile.TemporaryDirectory(prefix="recording-", dir=bench.workdir) as folder:
        tried = Path(folder)
        write_atomic(tried / LIMITS, _OPEN)
        tell("reference numbers")
        _refer(book, exact, entries)
        book.write(tried)
        reports = []
        for setup in (replace(exact, cache="f16"), *others):
            tell(f"questions to {setup.form}")
            reports.append(canary(tried, setup, behaves=False))
    right, rates = _right(reports)
    fixed = [question.name for question, _, _ in entries if question.group == ANSWERS]
    missed = [item for report in reports for item in report.items if item.name in fixed]
    missed = [item for item in missed if item.name not in right and not item.passed]
    if len(right.intersection(fixed)) < LEAST and kind == "master":
        raise CanaryError(
            f"{name} knows {len(right.intersection(fixed))} answers, expected at least {LEAST}",
            problems=[f"{i.name}: expected {i.expected}, found {i.found}" for i in missed],
            next_step="train it longer, then record it",
        )
    moved = {i.name: i.nmse for i in reports[-1].items if i.nmse is not None}
    steady = {name for name, value in moved.items() if value <= STEADY[kind]}
    if kind == "master":  # what is asked in the exact form alone has no rounding to survive
        steady |= {one.name for one in book.references if one.forms == (EXACT,)}
    _choose(book, entries, right, steady)
    suite = book.write(out)
    if exam.drafts and kind == "master":
        tell("drafts")
        book.drafted = _drafted(out, exact)
        suite = book.write(out)
    return Recorded(suite=suite, rates=rates, moved=moved, missed=tuple(missed))


def _drafted(folder: Path, exact: Setup) -> Drafted | None:
    """What becomes of every answer's drafts; None where this llama.cpp has no graph for them."""
    suite, limits = load_suite(folder)
    skip = unasked(suite, limits, one_in=1)
    found = acceptance(folder, exact, depth=DEPTH, skip=skip)
    return None if found.unsupported else Drafted(depth=DEPTH, counts=found.counts)


def _setups(bench: Bench, kind: Kind) -> tuple[Setup, list[Setup]]:
    """The exact run that gives the numbers, and the healthy ones that questions must survive."""
    # A tower in float16 would round what it multiplies with, too.
    vision = bench.setup.vision and _wide(bench, bench.setup.vision)
    if kind == "master":
        exact = replace(_form(bench, "f32", cache="f32"), vision=vision)
        return exact, [_form(bench, form, cache="f16") for form in ("f16", "q8_0")]
    mix = _form(bench, "mix", cache="f16")
    wide = _wide(bench, mix.model)
    return replace(mix, model=wide, vision=vision, form="mix widened", cache="f32"), [mix]


def _wide(bench: Bench, file: Path) -> Path:
    return widen(file, bench.workdir / f"{file.stem}-f32.gguf")


def _form(bench: Bench, form: str, *, cache: str) -> Setup:
    made = derive(
        bench.setup.model,
        form,  # type: ignore[arg-type]
        quantiser=bench.quantiser,
        folder=bench.workdir / "forms",
        record=None,
        log=bench.workdir / f"derive-{form}.log",
    )
    return replace(
        bench.setup,
        model=made.path,
        form=form,
        cache=cache,  # type: ignore[arg-type]
        log=bench.workdir / f"server-{form}-{cache}.log",
    )


def _refer(book: Book, setup: Setup, entries: Iterable[tuple[Question, int, int]]) -> None:
    """Numbers of some prompts of every paper; those that give no whole ones are left out."""
    taken: dict[str, int] = {}
    suite_like = Suite(
        schema=1,
        canary=book.canary,
        vocabulary=book.vocabulary,
        context=book.context,
        answers=(),
        references=(),
        numbers=Numbers(file="none", sha256="0" * 64),
    )
    with served(setup, suite_like) as server:
        api = Api(server.client)
        for question, _, wanted in entries:
            if taken.get(question.paper, 0) >= _SOURCES * wanted:
                continue
            try:
                book.refer(
                    api,
                    f"reference: {question.name}",
                    prompt_of(question.sample, book),
                    positions=POSITIONS,
                    forms=question.forms,
                )
            except CanaryError:
                continue
            taken[question.paper] = taken.get(question.paper, 0) + 1


def prompt_of(sample: Sample, book: Book) -> Prompt:
    """Token ids, or text and picture addresses in turn."""
    images = [image for turn in sample.turns for image in turn.pictures]
    counts = [token_count(array(image)) for image in images]
    prompt, _ = render(sample, image_tokens=counts)
    if not images:
        return tuple(tokenizer.load(corpus.tokenizer_json()).encode(prompt))
    parts: list[str] = []
    for image, count in zip(images, counts, strict=True):
        shown = f"<|begin_of_image|>{'<|image|>' * count}<|end_of_image|>"
        before, prompt = prompt.split(shown, 1)
        parts += [before, book.picture(image)]
    return tuple(part for part in (*parts, prompt) if part)


def _right(reports: list[CanaryReport]) -> tuple[set[str], dict[str, tuple[int, int]]]:
    """Questions that every form answers rightly that was asked, and the first one's rates."""
    items = [item for report in reports for item in report.items]
    right = {item.name for item in items} - {item.name for item in items if not item.passed}
    groups = (group for group in reports[0].groups if group.name not in {BEHAVIOUR, LOG})
    rates = {group.name: (group.right, group.of) for group in groups}
    return right, rates


def _choose(
    book: Book,
    entries: list[tuple[Question, int, int]],
    right: set[str],
    steady: Container[str],
) -> None:
    """Leave in the book what stays."""
    answers: set[str] = set()
    references: set[str] = set()
    count: dict[str, list[int]] = {}
    for question, kept, wanted in entries:
        so_far = count.setdefault(question.paper, [0, 0])
        if question.name in right and so_far[0] < kept:
            answers.add(question.name)
            so_far[0] += 1
        name = f"reference: {question.name}"
        if name in steady and so_far[1] < wanted:
            references.add(name)
            so_far[1] += 1
    book.keep(answers, references)


def _count(sample: Sample) -> int:
    known = tokenizer.load(corpus.tokenizer_json())
    return len(known.encode(sample.answer)) + _SPARE


def _context(entries: Iterable[tuple[Question, int, int]]) -> int:
    """Tokens of the longest conversation with its answer."""
    known = tokenizer.load(corpus.tokenizer_json())
    longest = 0
    for question, _, _ in entries:
        images = [image for turn in question.sample.turns for image in turn.pictures]
        counts = [token_count(array(image)) for image in images]
        prompt, _ = render(question.sample, image_tokens=counts)
        longest = max(longest, len(known.encode(prompt)) + _count(question.sample))
    return longest
