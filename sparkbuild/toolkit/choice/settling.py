"""The CUDA side of the choice: from the roots that are there to one toolkit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sparkbuild.files import DigestCache
from sparkbuild.manifest import Toolchain
from sparkbuild.toolkit.book import Book, cuda
from sparkbuild.toolkit.choice.acceptance import refuse_pointless, refuse_unknown, warnings
from sparkbuild.toolkit.choice.candidates import take, weigh
from sparkbuild.toolkit.choice.found import identified
from sparkbuild.toolkit.choice.places import Place
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.toolkit.identity.facts import FileFacts, read_facts
from sparkbuild.toolkit.model import Accepted, Toolkit


def settle_cuda(
    toolchain: Toolchain,
    there: Sequence[Place],
    architectures: tuple[str, ...],
    digests: DigestCache,
    *,
    book: Book,
    accepted: tuple[str, ...],
    lifted: tuple[str, ...] = (),
) -> Toolkit:
    """See ``select.settle``; ``there`` are the places to look at, in order of preference."""
    refuse_unknown(accepted, book)
    right, elsewhere = _by_nvcc(toolchain, there, digests)
    candidates = [
        weigh(found, book, architectures, (*accepted, *lifted))
        for found in identified(right, book, digests, architectures)
    ]
    taken, notes = take(
        toolchain, candidates, book=book, architectures=architectures, elsewhere=elsewhere
    )
    matched = {advisory.id: advisory for advisory in taken.advisories}
    refuse_pointless(accepted, matched, toolchain, architectures)
    identity = taken.found.identity
    return Toolkit(
        toolchain=toolchain.name,
        label=toolchain.label,
        kind="cuda",
        host=find_host_compiler(),
        root=str(taken.found.root),
        parts=identity.parts,
        architectures=architectures,
        options=toolchain.options(),
        notes=(*notes, *identity.notes, *warnings(taken, (*accepted, *lifted))),
        accepted=tuple(
            Accepted(id=name, effect=matched[name].effect) for name in dict.fromkeys(accepted)
        ),
        lifted=tuple(
            Accepted(id=name, effect=matched[name].effect)
            for name in dict.fromkeys(lifted)
            if name in matched and name not in accepted
        ),
    )


def _by_nvcc(
    toolchain: Toolchain, there: Sequence[Place], digests: DigestCache
) -> tuple[list[Place], list[str]]:
    """The places with the toolchain's own nvcc, and a line for each of the others.

    What a program embeds is remembered with its digest, so that a second run reads none again.
    """
    wanted = cuda(toolchain).nvcc
    compilers = {place.root: Path(os.path.realpath(place.root / "bin/nvcc")) for place in there}
    studied = digests.study(compilers.values(), FileFacts, read_facts)
    right, elsewhere = [], []
    for place in there:
        facts = studied[compilers[place.root]]
        stated = () if isinstance(facts, OSError) else facts[1].versions
        if stated == (wanted,):
            right.append(place)
        else:
            found = f"nvcc {' and '.join(stated)}" if stated else "no nvcc that states its version"
            elsewhere.append(f"{place.root}: {found}, expected {wanted}")
    return right, elsewhere
