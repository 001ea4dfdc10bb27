"""Drafts: the NextN blocks, and whether the build can draft with them."""

from __future__ import annotations

from typing import Final

from sparkbuild.model.book import book
from sparkbuild.model.build import Build
from sparkbuild.model.checks.subject import Subject, block_of
from sparkbuild.model.finding import Finding, State, listed, named, not_asked, not_tried
from sparkbuild.model.types import BY_NAME

MTP: Final = "draft-mtp"
_HEADS: Final = ("nextn.eh_proj.weight", "nextn.shared_head_head.weight")
"""The matrices of a NextN block through which all of a draft goes."""
_LEAST_BITS: Final = BY_NAME["q8_0"].bits
_HEARS: Final = "llama_batch_ext15set_token_state"
"""Part of a symbol that libllama has where a draft is told of pictures: the patches of vision-mtp
hand it the hidden states behind them (0006-mtp-embeddings.patch)."""
_ASSISTANTS: Final = ("gemma4-assistant",)
"""Architectures that are nothing but an MTP head."""


def nextn_blocks(subject: Subject) -> Finding:
    """As many blocks hold NextN tensors as the metadata says, and they are the last ones."""
    last, count = subject.blocks, subject.nextn
    numbers = {
        block_of(tensor) for tensor in subject.model.tensors.values() if ".nextn." in tensor.name
    }
    found = sorted(number for number in numbers if number is not None)
    told = f"in blocks {listed([str(number) for number in found])}" if found else "none"
    expected = f"NextN tensors in the last {count} of {last} blocks (nextn_predict_layers)"
    inside = all(last - count <= number < last for number in found)
    if inside and (len(found) == count or subject.model.missing):
        return Finding(name="NextN blocks", state="ok", expected=expected, found=told)
    # Some loaders take a file whose NextN block was split off; none takes unannounced tensors.
    known = book().known(subject.model.architecture)
    loads = inside and not subject.asked.drafts and (known is None or known.trunk_alone)
    state: State = "warning" if loads else "fault"
    return Finding(
        name="NextN blocks",
        state=state,
        expected=expected,
        found=told,
        reason="llama.cpp counts tensors against what the metadata announces, and drafts need them",
        next_step="take a file that was converted with its NextN block, or without it and its key",
    )


def nextn_precision(subject: Subject) -> Finding:
    """The NextN head is not coarser than Q8_0."""
    heads = {
        tensor.name: tensor.type
        for tensor in subject.model.tensors.values()
        if tensor.name.endswith(_HEADS)
    }
    coarse = [
        f"{name} {kind}"
        for name, kind in heads.items()
        if kind in BY_NAME and BY_NAME[kind].bits < _LEAST_BITS
    ]
    return Finding(
        name="NextN precision",
        state="warning" if coarse else "ok",
        expected="Q8_0 or finer",
        found=listed(coarse or [f"{name} {kind}" for name, kind in heads.items()]) or "no head",
        reason="with this projection at Q2_K 45 % of GLM-5.3-Flash's drafts were accepted and no "
        "time was won; at Q8_0, as published quants have it, 59 to 71 %, at 1.5 times the speed"
        if coarse
        else "",
        next_step="quantise again with --tensor-type nextn=q8_0, or take a published file"
        if coarse
        else "",
    )


def graph(subject: Subject) -> Finding:
    """The build has an MTP graph for the model that is to draft."""
    asked, build = subject.asked, subject.build
    drafter = asked.drafter or subject.model
    name = drafter.architecture
    if MTP not in asked.speculation:
        return not_asked("MTP graph")
    library = build.llama.path.name if build else "libllama"
    expected = f"a NextN block, and an MTP graph for {named(name)} in {library}"
    if build and (refused := _refused(build, name, expected)):
        return refused
    if not drafter.number(drafter.key("nextn_predict_layers")) and name not in _ASSISTANTS:
        return _no_graph(
            expected,
            f"{drafter.path.name} has no NextN block",
            "llama-server ends with `failed to create MTP context`",
            "serve it without --spec-type draft-mtp, or take a file with its NextN block",
        )
    if build is None:
        return not_tried("MTP graph", expected, "a NextN block")
    return _drawn(build, name, expected)


def _refused(build: Build, name: str, expected: str) -> Finding | None:
    """The fault of a library that holds a text which it throws instead of a graph."""
    for refusal in book().refusal:
        if refusal.architecture == name and build.llama.knows(refusal.text):
            found = f"the library's own text: {refusal.text}"
            return _no_graph(expected, found, refusal.reason, refusal.remedy)
    return None


def _drawn(build: Build, name: str, expected: str) -> Finding:
    """Whether a build has the graph of a model with a NextN block."""
    borrowed = next((g.of for g in book().graph if g.architecture == name), name)
    if build.has_mtp_graph(borrowed) or name in _ASSISTANTS:
        return Finding(name="MTP graph", state="ok", expected=expected, found="both")
    if not build.mtp_graphs:
        return Finding(
            name="MTP graph",
            state="note",
            expected=expected,
            found="a library that names no graph",
            reason="not known: its type names are not there (built without RTTI, or packed)",
            next_step="start it with drafts and look",
        )
    return _no_graph(
        expected,
        f"graphs for {listed(sorted(build.mtp_graphs), most=40)}",
        "the build would draft with a graph that is not made for it",
        "serve it without --spec-type draft-mtp, or build a newer llama.cpp",
    )


def speculation(subject: Subject) -> Finding:
    """One way of speculation, and the one that the drafter is made for."""
    types, drafter = subject.asked.speculation, subject.asked.drafter
    expected = "one --spec-type"
    if drafter is not None and drafter.architecture in _ASSISTANTS and MTP not in types:
        return Finding(
            name="speculation",
            state="fault",
            expected=f"--spec-type {MTP} with {drafter.architecture}",
            found=listed(list(types)) or "none",
            reason="every request fails where an MTP head is to draft as a model of its own",
            next_step=f"--spec-type {MTP}",
        )
    several = len(types) > 1
    return Finding(
        name="speculation",
        state="warning" if several else "ok",
        expected=expected,
        found=listed(list(types)) or "none",
        reason="ngram-mod together with draft-mtp is reported to answer 500 to every completion "
        "while /health stays ok; not tried by us"
        if several
        else "",
        next_step="ask for one of them" if several else "",
    )


def drafts_and_pictures(subject: Subject) -> Finding:
    """Pictures do not break the draft: it has several axes, the build tells it, or one is asked."""
    model, build = subject.asked.drafter or subject.model, subject.build
    both = subject.vision is not None and MTP in subject.asked.speculation
    sections = model.numbers(model.key("rope.dimension_sections")) or ()
    axes = sum(1 for section in sections if section > 0) > 1
    told = build is not None and any(_HEARS in text for text in build.llama.texts)
    holds = not both or axes or told
    what = "not both asked" if not both else "M-RoPE" if axes else "a build that tells the draft"
    return Finding(
        name="drafts and pictures",
        state="ok" if holds else "warning",
        expected="a draft with M-RoPE (rope.dimension_sections), or no pictures with drafts",
        found=what if holds else "a draft with one axis",
        reason=""
        if holds
        else "the draft never hears of a picture and its next position is not the one after the "
        "last: b9736 to b11434 answer 500 to the request, and /health stays ok",
        next_step="" if holds else "ask it one picture with drafts on before it serves both",
    )


def _no_graph(expected: str, found: str, reason: str, next_step: str) -> Finding:
    return Finding(
        name="MTP graph",
        state="fault",
        expected=expected,
        found=found,
        reason=reason,
        next_step=next_step,
    )
