"""What ``sparkbuild smoke`` does: a plan's passes and switches, and the ladder where one fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import msgspec

from sparkbuild.canary.catalogue import CATALOGUE, Canary, Catalogue
from sparkbuild.canary.forms import EXACT, possible
from sparkbuild.canary.gguf.derive import FORMS, Form
from sparkbuild.canary_answers import worst_code
from sparkbuild.canary_desk import Desk
from sparkbuild.canary_work import run_canary
from sparkbuild.errors import ManifestError, ModelError, SmokeError
from sparkbuild.files import sha256_file
from sparkbuild.report.canaries import Result
from sparkbuild.report.smoke import Part, Rung, Smoked
from sparkbuild.smoke.plan import Plan, Way
from sparkbuild.smoke_before import basics, fitting
from sparkbuild.smoke_pool import Unit, worked


def run_plan(
    desk: Desk, catalogue: Catalogue, plan: Plan, *, file: Path, at_once: int, diagnose: bool
) -> Smoked:
    """Every pass and switch of a plan on a build; what fails in one is kept, and the rest goes on.

    ``at_once`` servers run at the same time. With ``diagnose``, ways of the ladder are tried on
    what failed, up to the first that cures it. ``file`` is the plan's. With ``desk.first`` the
    first thing that is wrong ends it, and the quickest come first: what was asked until then is
    told. Only the main thread may call this. Raises ManifestError where it names what the catalogue
    does not have, BusyError while another sparkbuild asks the same canaries.
    """
    _check(catalogue, plan, file)
    entries = [catalogue.canary(name) for name in dict.fromkeys(e.canary for e in plan.passes)]
    fits = fitting(desk, entries) if plan.fitting else ()
    misfit = desk.first and any(one.faults for one in fits)
    first = basics(desk, plan.basics) if plan.basics and not misfit else None
    begins_wrong = misfit or bool(desk.first and first and not first.passed)
    parts = [] if begins_wrong else _parts(desk, catalogue, plan)
    with contextlib.ExitStack() as stack:
        for canary in {part.canary.name: part.canary for part in parts}.values():
            stack.enter_context(desk.holding(canary))
        parts = [replace(part, desk=replace(part.desk, held=True)) for part in parts]
        results: list[list[Result]] = [[] for _ in parts]
        units = _units(parts)
        if desk.first:
            units.sort(key=_quickest)
        asking = stack.enter_context(
            contextlib.closing(worked(units, at_once=at_once, live=desk.live))
        )
        for unit, result in asking:
            results[unit.part].append(result)
            if desk.first and _wrong(result):
                break
        asking.close()
        reported = tuple(
            _explained(part, plan, _joined(part, found), diagnose=diagnose)
            for part, found in zip(parts, results, strict=True)
            if found
        )
    return Smoked(
        suite=plan.name,
        catalogue=sha256_file(desk.data / CATALOGUE),
        backend=desk.backend,
        fitting=fits,
        basics=first,
        parts=reported,
    )


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A part of a plan: what is asked of which canary, at which desk."""

    name: str
    reason: str
    canary: Canary
    desk: Desk
    forms: tuple[Form, ...]
    drafts: bool


def _parts(desk: Desk, catalogue: Catalogue, plan: Plan) -> list[_Asked]:
    found = []
    for entry in plan.passes:
        canary = catalogue.canary(entry.canary)
        forms = tuple(
            form
            for form in possible(canary)
            if form in entry.forms and (desk.backend == "cpu" or form != EXACT)
        )
        drafts = entry.drafts and canary.drafts
        found.append(
            _Asked(
                name=canary.name, reason="", canary=canary, desk=desk, forms=forms, drafts=drafts
            )
        )
    switches = (switch for switch in plan.switches if desk.backend in switch.backends)
    return found + [
        _Asked(
            name=switch.name,
            reason=switch.reason,
            canary=catalogue.canary(switch.canary),
            desk=_changed(desk, switch),
            forms=(cast("Form", switch.form),),
            drafts=False,
        )
        for switch in switches
    ]


def _units(parts: Sequence[_Asked]) -> list[Unit]:
    """One for each form and for the drafts; of the largest canaries first, which take longest."""
    units = []
    for index, part in enumerate(parts):
        desk, entry = part.desk, part.canary
        units += [Unit(part=index, desk=desk, entry=entry, forms=(form,)) for form in part.forms]
        units += [Unit(part=index, desk=desk, entry=entry, drafts=True)] if part.drafts else []
    return sorted(units, key=lambda unit: -_size(unit))


def _size(unit: Unit) -> int:
    return (unit.desk.data / unit.entry.model).stat().st_size


def _quickest(unit: Unit) -> tuple[bool, bool, bool, int, bool]:
    """What tells most in the least time comes first.

    Exact numbers of small canaries, then every tensor type at once, then canary by canary with its
    drafts behind its forms; switches come last.
    """
    exact, mix = EXACT in unit.forms, "mix" in unit.forms
    return not exact, not mix, bool(unit.desk.label), _size(unit), unit.drafts


def _wrong(result: Result) -> bool:
    """Whether anything is, of what may be some forms of a canary or its drafts alone."""
    well = [ran.passed for ran in result.ran] + [check.passed for check in result.drafts]
    return bool(result.failures) or not all(well)


def _joined(part: _Asked, found: Sequence[Result]) -> Part:
    """A part's results as one, forms in their order."""
    ran = {report.form: report for result in found for report in result.ran}
    result = Result(
        canary=part.canary.name,
        ran=tuple(ran[form] for form in part.forms if form in ran),
        drafts=tuple(check for one in found for check in one.drafts),
        failures={what: failure for one in found for what, failure in one.failures.items()},
    )
    return Part(name=part.name, reason=part.reason, result=result)


def _explained(asked: _Asked, plan: Plan, part: Part, *, diagnose: bool) -> Part:
    """A part with what its failure points to, and the ladder's answer where one is wanted."""
    if part.result.passed:
        return part
    desk, canary = asked.desk, asked.canary
    failed, well = _groups(part.result)
    form = _first_failed(part.result) if diagnose else None
    return msgspec.structs.replace(
        part,
        failed=failed,
        likely=plan.likely(failed, well),
        ladder=tuple(_climbed(desk, canary, form, plan)) if form else (),
    )


def _groups(result: Result) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the groups that failed anywhere, and of those that are well everywhere."""
    failed = {"start"} if result.failures else set()
    failed |= {group.name for ran in result.ran for group in ran.groups if not group.passed}
    failed |= {"drafts" for check in result.drafts if not check.passed}
    every = {group.name for ran in result.ran for group in ran.groups}
    return tuple(sorted(failed)), tuple(sorted(every - failed))


def _first_failed(result: Result) -> Form | None:
    """The form to climb with: the first that was asked and is not right, or did not start."""
    wrong = [ran.form for ran in result.ran if not ran.passed]
    started = [form for form in result.failures if form in FORMS]
    return cast("Form", (wrong + started)[0]) if wrong or started else None


def _climbed(desk: Desk, canary: Canary, form: Form, plan: Plan) -> Iterator[Rung]:
    """Each rung with what it did, up to and with the first that cures."""
    for way in plan.ladder:
        changed = _changed(desk, way)
        if desk.backend not in way.backends or _plain(changed, form) == _plain(desk, form):
            continue
        result = run_canary(changed, canary, (form,), drafts=False)
        yield Rung(name=way.name, cures=result.passed, reason=way.reason)
        if result.passed:
            return


def _changed(desk: Desk, way: Way) -> Desk:
    """The desk with what a way has that others have not."""
    return replace(
        desk,
        cache=way.cache or desk.cache,
        flags=(*desk.flags, *way.flags),
        environment={**desk.environment, **way.environment},
        slots=way.slots or desk.slots,
        label=", ".join(filter(None, (desk.label, way.name))),
    )


def _plain(desk: Desk, form: Form) -> Desk:
    """What decides a start of a form: two that are equal here start the same server."""
    return replace(desk, cache=desk.cache_of(form), label="")


def _check(catalogue: Catalogue, plan: Plan, file: Path) -> None:
    """Refuse a plan of what is not there, before anything is started."""
    known = {entry.name: possible(entry) for entry in catalogue.canaries}
    asked = [(entry.canary, entry.forms) for entry in plan.passes]
    asked += [(switch.canary, (switch.form,)) for switch in plan.switches]
    problems = []
    for name, forms in asked:
        lacking = [form for form in forms if form not in known.get(name, ())]
        if lacking:
            what = f"no form {', '.join(lacking)}" if name in known else "no such canary"
            problems.append(f"{name}: {what}")
    if problems:
        raise ManifestError(
            f"the smoke suite {plan.name} asks for what the catalogue does not have",
            problems=problems,
            evidence=[file],
            next_step=f"correct {file}, or name --data DIR with these canaries",
        )


def exit_code(found: Smoked) -> int:
    """SmokeError's where anything that was asked is wrong, ModelError's where a model misfits."""
    code = worst_code(found.results)
    if found.basics and not found.basics.passed:
        code = SmokeError.exit_code
    misfits = any(one.faults for one in found.fitting)
    return code or (ModelError.exit_code if misfits else 0)


def answer(found: Smoked, code: int) -> dict[str, object]:
    """Everything, for ``--json``."""
    plain = cast("dict[str, object]", msgspec.to_builtins(found))
    return {"result": "failed" if code else "passed", "exit_code": code, **plain}
