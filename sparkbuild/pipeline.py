"""``make``: the nine stages in order; with its two halves the only module that knows them all."""

from __future__ import annotations

from sparkbuild.build.arguments import PLACEHOLDERS, build_key, configure_arguments
from sparkbuild.build.tools import find_tools, with_cache
from sparkbuild.build_stages import (
    build_stage,
    configure_stage,
    inspect_stage,
    package_stage,
    smoke_stage,
)
from sparkbuild.files import exclusive
from sparkbuild.job import Held, Job, Known
from sparkbuild.package.model import Made
from sparkbuild.tree_stages import patches_stage, qualify_stage, source_stage, toolkit_stage


def run_stages(job: Job, known: Known) -> None:
    """Toolkit, source, patches, qualify, configure, build, inspect, smoke, package."""
    toolkit = toolkit_stage(job)
    known.accepted = toolkit.accepted
    source = source_stage(job)
    tree = patches_stage(job, source)
    judged = qualify_stage(job, toolkit, tree)
    tools = with_cache(find_tools(), job.cache, toolkit)
    known.key = build_key(job.patchset, toolkit, tree, tools=tools)
    place = job.work.build(job.patchset.name, toolkit.toolchain, known.key)
    with exclusive(place.lock, what=f"build {known.key[:12]}") as lock:
        held = Held(place=place, key=known.key, tools=tools, lock=lock)
        configuration = configure_stage(job, held, toolkit, tree, judged)
        binaries = build_stage(job, held, configuration)
        facts = inspect_stage(job, place, binaries, toolkit, tree)
        known.smoke = smoke_stage(job, place, binaries, facts, toolkit, tree, known)
        made = Made(
            patchset=job.patchset,
            source=source,
            tree=tree,
            toolkit=toolkit,
            arguments=configure_arguments(job.patchset, toolkit, PLACEHOLDERS),
            qualification=judged,
            smoke=known.smoke,
        )
        known.wheel = package_stage(job, held, configuration, binaries, facts, made)
