"""Executes what nvcc 13.2.0 and 13.2.1 make of the sources' own products, for GB10.

Nothing is built: of the three folders that a proof is given, the sources are compiled to PTX by
both compilers, which are fetched once (0.3 GB each), and the PTX is executed on the CPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, cast

from sparkbuild.build.jobs import usable_cores
from sparkbuild.errors import SparkbuildError
from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.qualify.bench import Gathered, Order, gather
from sparkbuild.qualify.catalogue import Given
from sparkbuild.qualify.compile import Nvcc
from sparkbuild.qualify.flags import foretold
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.toolkit.lock import Platform
from sparkbuild.toolkit.provision.provision import install

_RELEASES: Final = ("13.2.0", "13.2.1")
_TARGET: Final = "121a"
_KINDS: Final = ("vec_dot",)


def executed(release: str, sources: Path, scratch: Path) -> Gathered:
    """The probes of products, compiled by one release's nvcc."""
    root, platform = scratch / f"cuda-{release}", cast("Platform", current_platform())
    install(
        read_book(find_recipes(None)), f"cuda-{release}", platform, root=root,
        downloads=scratch / "downloads", progress=lambda *_: None, compilers=True,
    )  # fmt: skip
    host = find_host_compiler()
    nvcc = Nvcc(
        root=str(root), host=host.cxx, source=str(sources), architecture=_TARGET,
        flags=foretold({}), folder=str(scratch / f"ptx-{release}"),
    )  # fmt: skip
    given = Given(host=host, folder=str(scratch / "reference"))
    cores = max(1, int(usable_cores()))
    return gather(
        Order(nvcc=nvcc, given=given, only=_KINDS), at_once=cores, progress=lambda *_: None
    )


def main(argv: list[str]) -> int:
    """Say of each compiler how many probes are right; status 1 where one is not."""
    _, sources, scratch = map(Path, argv)
    status = 0
    for release in _RELEASES:
        try:
            probes = executed(release, sources, scratch / "nvcc-13.2-bytes").probes.values()
        except SparkbuildError as error:
            sys.stdout.write(f"{error.message}\n" + "".join(f"  {p}\n" for p in error.problems))
            return error.exit_code
        wrong = [f"{probe.name}: {probe.outcome}" for probe in probes if probe.outcome != "right"]
        sys.stdout.write(f"nvcc {release}: {len(probes) - len(wrong)} of {len(probes)} right\n")
        sys.stdout.writelines(f"  {line}\n" for line in wrong)
        status = status or int(bool(wrong) or not probes)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
