"""After a night: issues for its faults, and a proposal where a newer base can be taken."""

from __future__ import annotations

from sparkbuild.errors import SparkbuildError
from sparkbuild.nightly_order import Ended, Order
from sparkbuild.nightly_propose import propose, waiting
from sparkbuild.process import quoted
from sparkbuild.stages import Observer


def after(order: Order, ended: Ended, live: Observer, *, token: str) -> tuple[str, ...]:
    """Tell whom the plan names; what cannot be told is a line, never a red night.

    ``token`` is a GitHub token, or empty.
    """
    lines = [
        *_issues(order, ended, token),
        *waiting(ended),
        *_culprit(order, ended),
        *_proposed(order, ended),
    ]
    for line in lines:
        live.note(line)
    return tuple(lines)


def _culprit(order: Order, ended: Ended) -> list[str]:
    """The command that finds the commit, where only the newer base failed to be made."""
    upstream, release = order.plan.upstream, ended.release
    if ended.night.blame not in {"upstream", "patches"} or upstream is None or release is None:
        return []
    bad = [one for one in ended.outcomes if one.step.kind == "make" and one.state == "failed"]
    pins = order.pins
    return [
        "to find the commit: "
        + quoted(
            ["sparkbuild", "bisect", "--repo", upstream.url, "--good",
             f"b{pins[one.step.variant]}", "--bad", release.tag, "--variant", one.step.variant,
             "--toolkit", one.step.toolkit, "--check", one.check or one.stage]
        )
        for one in bad[:1]
        if pins[one.step.variant] is not None
    ]  # fmt: skip


def _proposed(order: Order, ended: Ended) -> list[str]:
    try:
        proposal = propose(order, ended)
    except SparkbuildError as error:
        return [f"no proposal was written: {'; '.join([error.message, *error.problems])}"]
    if proposal is None:
        return []
    taking = f"git am {proposal.patch}, or git pull {proposal.repository} {proposal.branch}"
    return [f"{proposal.base} can be taken: {taking}"]


def _issues(order: Order, ended: Ended, token: str) -> list[str]:
    settings = order.plan.github
    if not settings.repository or not ended.troubles:
        return []
    if not token:
        return ["no issue was written: SPARKBUILD_GITHUB_TOKEN is not set"]
    from sparkbuild.nightly.github import Issues  # noqa: PLC0415 - httpx takes 100 ms

    lines = []
    with Issues(settings.api, settings.repository, token, labels=settings.labels) as issues:
        for trouble in ended.troubles:
            try:
                lines.append(issues.tell(trouble))
            except SparkbuildError as error:
                lines.append(f"GitHub was not told of {trouble.title}: {error.message}")
    return lines
