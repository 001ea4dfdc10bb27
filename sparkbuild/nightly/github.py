"""One GitHub issue for each fault: found by a mark in its body, so that no second one is made.

REST API, version 2022-11-28: issues are listed with ``GET /repos/{owner}/{repo}/issues``, made with
``POST`` there, changed with ``PATCH .../issues/{number}``, and written to with
``POST .../issues/{number}/comments``. A reply may be lost after the server did its work: before
anything is made again, it is looked for.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Final, Self

import httpx

from sparkbuild.errors import HostError
from sparkbuild.history.model import Trouble

_VERSION: Final = "2022-11-28"
_PER_PAGE: Final = 100
_MOST_PAGES: Final = 20
"""2,000 issues of a label: more are never looked through."""

_ATTEMPTS: Final = 4
_LONGEST_WAIT: Final = 120.0
"""Seconds that a rate limit may ask for; where it asks for more, the next night tells it."""

_BROKEN: Final = (500, 502, 503, 504)
_LIMITED: Final = (403, 429)


class Lost(Exception):  # noqa: N818 - a reply that did not come says nothing of the request
    """A request went out and no reply came: it may have been done, or not."""


class Issues:
    """The issues of one repository. ``pause`` multiplies every wait: tests have none."""

    def __init__(
        self,
        api: str,
        repository: str,
        token: str,
        *,
        labels: tuple[str, ...] = (),
        pause: float = 1.0,
    ) -> None:
        self._path = f"/repos/{repository}/issues"
        self._labels = labels
        self._pause = pause
        self._client = httpx.Client(
            base_url=api,
            timeout=30.0,
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {token}",
                "X-GitHub-Api-Version": _VERSION,
                "User-Agent": "sparkbuild",
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def tell(self, trouble: Trouble) -> str:
        """Make the fault's issue, or bring it up to date; a line about what was done.

        Raises HostError where GitHub refuses or does not answer.
        """
        issue = self._find(trouble)
        if issue is None:
            if trouble.closed:
                return f"no issue is open for {trouble.title}, which is cured"
            number = self._make(trouble)
            return f"issue {number} opened: {trouble.title}"
        number = int(issue["number"])
        done = [self._comment(number, trouble)]
        wanted = "closed" if trouble.closed else "open"
        if issue["state"] != wanted:
            self._ask("PATCH", f"{self._path}/{number}", {"state": wanted})
            done.append("closed" if trouble.closed else "opened again")
        return f"issue {number} {', '.join(one for one in done if one) or 'is up to date'}"

    def _find(self, trouble: Trouble) -> dict[str, Any] | None:
        """The oldest issue with the fault's mark, open or closed."""
        found: list[dict[str, Any]] = []
        for page in range(1, _MOST_PAGES + 1):
            query: dict[str, str | int] = {
                "state": "all", "per_page": _PER_PAGE, "page": page, "sort": "created",
                "direction": "asc", **({"labels": ",".join(self._labels)} if self._labels else {}),
            }  # fmt: skip
            issues = self._ask("GET", self._path, query=query)
            found += [
                one
                for one in issues
                if mark(trouble) in (one.get("body") or "") and "pull_request" not in one
            ]
            if len(issues) < _PER_PAGE or found:
                break
        return found[0] if found else None

    def _make(self, trouble: Trouble) -> int:
        body = {
            "title": f"nightly: {trouble.title}"[:250],
            "body": f"{mark(trouble)}\n{text(trouble)}",
            "labels": list(self._labels),
        }
        for attempt in range(_ATTEMPTS):
            try:
                return int(self._ask("POST", self._path, body, once=True)["number"])
            except Lost:
                time.sleep(self._pause * 2**attempt)
                made = self._find(trouble)
                if made is not None:
                    return int(made["number"])
        raise _refused("no reply came to a new issue, and none is to be found")

    def _comment(self, number: int, trouble: Trouble) -> str:
        """Write what is new, once for each night: a comment has the night's mark."""
        what = f"<!-- sparkbuild-night {trouble.updated} {trouble.last_run} -->"
        place = f"{self._path}/{number}/comments"
        for attempt in range(_ATTEMPTS):
            known = self._comments(place)
            if any(what in (one.get("body") or "") for one in known):
                return "" if attempt == 0 else "updated"
            try:
                self._ask("POST", place, {"body": f"{what}\n{text(trouble)}"}, once=True)
            except Lost:
                time.sleep(self._pause * 2**attempt)
            else:
                return "updated"
        raise _refused(f"no reply came to a comment on issue {number}")

    def _comments(self, place: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for page in range(1, _MOST_PAGES + 1):
            some = self._ask("GET", place, query={"per_page": _PER_PAGE, "page": page})
            found += some
            if len(some) < _PER_PAGE:
                break
        return found

    def _ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        query: dict[str, str | int] | None = None,
        once: bool = False,
    ) -> Any:
        """One request. ``once``: it makes something, so a lost reply is no reason to send it again.

        Raises Lost (``once``), HostError.
        """
        reason = ""
        for attempt in range(_ATTEMPTS):
            try:
                reply = self._client.request(method, path, json=body, params=query)
            except httpx.ConnectError as error:
                reason = str(error)  # nothing was sent
                time.sleep(self._pause * 2**attempt)
                continue
            except httpx.HTTPError as error:
                if once:
                    raise Lost(str(error)) from error
                reason = f"{type(error).__name__}: {error}"
                time.sleep(self._pause * 2**attempt)
                continue
            if reply.is_success:
                return reply.json()
            reason = f"{reply.status_code} {reply.reason_phrase}: {_said(reply)}"
            wait = _wait(reply, attempt)
            if wait is None:
                break
            if once and reply.status_code in _BROKEN:
                raise Lost(reason)
            if wait > _LONGEST_WAIT:
                reason += f"; it asks to wait {wait:.0f} s"
                break
            time.sleep(self._pause * wait)
        raise _refused(reason)


def mark(trouble: Trouble) -> str:
    """What an issue is found by; no reader sees it."""
    return f"<!-- sparkbuild-trouble {trouble.key} -->"


def text(trouble: Trouble) -> str:
    """A fault for a person: whom it points to, since when, what was said."""
    state = f"Cured on {trouble.closed}." if trouble.closed else "Not cured."
    message = trouble.message.replace("```", "'''")[:4000]
    return (
        f"{state} Points to: **{trouble.blame}**. First seen {trouble.opened}, last changed "
        f"{trouble.updated}, on {len(trouble.nights)} nights; last run `{trouble.last_run}`.\n\n"
        f"```\n{message}\n```\n"
    )


def _wait(reply: httpx.Response, attempt: int) -> float | None:
    """Seconds until it is worth asking again; None where it is not."""
    if reply.status_code in _BROKEN:
        return float(2**attempt)
    if reply.status_code not in _LIMITED:
        return None
    after = reply.headers.get("retry-after", "")
    if after.isdecimal():
        return float(after)
    if reply.headers.get("x-ratelimit-remaining") == "0":
        reset = reply.headers.get("x-ratelimit-reset", "")
        return max(1.0, float(reset) - time.time()) if reset.isdecimal() else 60.0
    return 60.0 if reply.status_code == 429 else None


def _said(reply: httpx.Response) -> str:
    try:
        return str(reply.json().get("message", ""))[:200]
    except (ValueError, AttributeError):
        return reply.text[:200]


def _refused(reason: str) -> HostError:
    return HostError(
        f"GitHub: {reason}",
        next_step="see to the token's right to write issues (Issues: read and write), and to the "
        "network; the next night tells it again",
    )
