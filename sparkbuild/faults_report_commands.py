"""``sparkbuild faults report``: the fault matrix as a page."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from sparkbuild.console import JSON, answer, console


@click.command("report")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="MATRIX.json")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE.html",
    help="Where the page goes; it needs no other file.",
)
@JSON
def faults_report_command(file: Path, out: Path, as_json: bool) -> None:
    r"""Write the matrix that ``faults run --json`` printed as one page.

    Every fault with its verdict, stage, seconds and message, and a chart of the stages that refused
    each kind. Needs pip install 'sparkbuild\[site]'.
    """
    import msgspec

    from sparkbuild.errors import ManifestError
    from sparkbuild.faults.model import Matrix
    from sparkbuild.files import write_atomic
    from sparkbuild.report.site.pages import fault_page

    try:
        matrix = msgspec.json.decode(file.read_bytes(), type=Matrix)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestError(
            f"{file} is no fault matrix: {error}",
            evidence=[file],
            next_step="`sparkbuild faults run --json > MATRIX.json` writes one",
        ) from error
    write_atomic(out, fault_page(matrix))
    facts = {"page": str(out.absolute()), "faults": len(matrix.found), "ok": matrix.ok}
    answer(facts, as_json=as_json, out=console(stderr=as_json))
