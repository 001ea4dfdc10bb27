"""What a wheel is given to tell of its making, gathered where the build was made."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.build.model import BinaryFacts, Configuration
from sparkbuild.package import identity
from sparkbuild.package.compiled import compiled_files
from sparkbuild.package.model import Made
from sparkbuild.package.provenance import Extra, provenance_members
from sparkbuild.package.sbom import sbom


def inside(made: Made, facts: BinaryFacts, configuration: Configuration, *, ninja: Path) -> Extra:
    """What ``make.package`` takes as ``extra``: the statement over the other members, the SBOM.

    Raises PackageError where the build does not tell which files its compilers read.
    """
    toolkit, tree = made.toolkit, made.tree
    version = identity.wheel_version(
        build=tree.build, label=toolkit.label, variant=made.patchset.name, tree=tree.tree
    )
    read = compiled_files(
        Path(configuration.binary_dir),
        source=Path(configuration.source_dir),
        toolkit=Path(toolkit.root) if toolkit.root else None,
        ninja=ninja,
    )
    bill = sbom(made, facts, read, version=version)
    folder = identity.dist_info(version)
    return lambda known: provenance_members(known, made, dist_info=folder, sbom=bill)
