"""One issue for each fault, asked of a server that does what GitHub's REST API is documented to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from sparkbuild.errors import HostError
from sparkbuild.history.model import Trouble
from sparkbuild.nightly.github import Issues, mark

TROUBLE = Trouble(
    key="k1", title="make vision", opened="2026-11-01T00:00:00+00:00",
    updated="2026-11-01T00:00:00+00:00", closed=None, nights=("n1",), blame="upstream",
    first_run="r1", last_run="r1", message="it broke ``` here",
)  # fmt: skip
PATH = "/repos/team/repo/issues"


@dataclass
class GitHub:
    """``answers`` are given before anything is done (0: none); ``lost`` gets no reply."""

    issues: list[dict[str, Any]] = field(default_factory=list)
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def do(self, method: str, path: str, query: dict[str, Any], body: Any) -> tuple[int, Any]:
        words = path.removeprefix(PATH).strip("/").split("/")
        if method == "GET" and words == [""]:
            every = [one for one in self.issues if query.get("state", ["open"]) == ["all"]
                     or one["state"] == "open"]  # fmt: skip
            asked = set(",".join(query.get("labels", [])).split(",")) - {""}
            every = [one for one in every if asked <= {x["name"] for x in one["labels"]}]
            if query.get("direction") != ["asc"]:
                every = every[::-1]
            size, page = int(query["per_page"][0]), int(query["page"][0])
            return 200, every[(page - 1) * size : page * size]
        if method == "POST" and words == [""]:
            labels = [{"name": name} for name in body.get("labels", [])]
            one = {**body, "labels": labels, "number": len(self.issues) + 1, "state": "open"}
            self.issues.append(one)
            return 201, one
        issue = self.issues[int(words[0]) - 1]
        if method == "PATCH":
            issue.update(body)
            return 200, issue
        comments = self.comments.setdefault(int(words[0]), [])
        if method == "POST":
            comments.append(body)
            return 201, body
        size, page = int(query["per_page"][0]), int(query["page"][0])
        return 200, comments[(page - 1) * size : page * size]


@pytest.fixture
def github() -> Iterator[GitHub]:
    state = GitHub()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            address = urlsplit(self.path)
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size) or b"null")
            state.asked.append((self.command, address.path))
            state.headers.append(dict(self.headers))
            if state.answers:
                code, headers = state.answers.pop(0)
                if code:
                    self.reply(code, {"message": "no"}, headers)
                    return
            code, document = state.do(self.command, address.path, parse_qs(address.query), body)
            if f"{self.command} {address.path}" in state.lost:
                state.lost.remove(f"{self.command} {address.path}")
                self.close_connection = True
                return
            self.reply(code, document, {})

        do_GET = do_POST = do_PATCH = handle_any  # noqa: N815 - names of the base class

        def reply(self, code: int, document: Any, headers: dict[str, str]) -> None:
            data = json.dumps(document).encode()
            self.send_response(code)
            for name, value in {**headers, "content-length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def tell(github: GitHub, trouble: Trouble = TROUBLE) -> str:
    with Issues(github.url, "team/repo", "secret", labels=("nightly",), pause=0.0) as issues:
        return issues.tell(trouble)


def later(**more: Any) -> Trouble:
    return msgspec.structs.replace(TROUBLE, updated="2026-11-02T00:00:00+00:00", **more)


def test_a_fault_is_one_issue_over_its_whole_life(github: GitHub) -> None:
    assert "issue 1 opened" in tell(github)
    tell(github, later(last_run="r2"))
    cured = later(last_run="r2", closed="2026-11-03T00:00:00+00:00")
    assert "closed" in tell(github, msgspec.structs.replace(cured, updated="3"))
    assert github.issues[0]["state"] == "closed"
    assert "opened again" in tell(github, later(last_run="r4"))
    assert [one["state"] for one in github.issues] == ["open"]
    assert mark(TROUBLE) in github.issues[0]["body"]
    assert "``` here" not in github.issues[0]["body"]
    assert github.headers[0]["Authorization"] == "Bearer secret"


def test_the_same_news_is_told_once(github: GitHub) -> None:
    tell(github)
    tell(github, later())
    tell(github, later())
    assert len(github.comments[1]) == 1


def test_two_faults_are_two_issues(github: GitHub) -> None:
    tell(github)
    tell(github, msgspec.structs.replace(TROUBLE, key="k2"))
    assert len(github.issues) == 2


def test_an_issue_behind_many_others_is_found(github: GitHub) -> None:
    for number in range(250):
        github.do("POST", PATH, {}, {"title": "x", "body": None, "labels": ["nightly"]})
        assert github.issues[number]["number"] == number + 1
    assert "issue 251 opened" in tell(github)
    tell(github, later())
    assert len(github.issues) == 251


def test_a_pull_request_with_the_mark_is_no_issue(github: GitHub) -> None:
    github.do("POST", PATH, {}, {"title": "x", "body": mark(TROUBLE), "labels": ["nightly"]})
    github.issues[0]["pull_request"] = {}
    assert "issue 2 opened" in tell(github)


def test_a_reply_lost_after_the_issue_was_made_makes_no_second_one(github: GitHub) -> None:
    github.lost = [f"POST {PATH}"]
    assert "issue 1 opened" in tell(github)
    assert len(github.issues) == 1


def test_a_comments_lost_reply_makes_no_second_one(github: GitHub) -> None:
    tell(github)
    github.lost = [f"POST {PATH}/1/comments"]
    tell(github, later())
    assert len(github.comments[1]) == 1


@pytest.mark.parametrize("code", [500, 502, 503, 504])
@pytest.mark.parametrize("healthy", [0, 1])
def test_a_server_that_is_broken_for_a_while(github: GitHub, code: int, healthy: int) -> None:
    """From the first request on, or once the list was answered and the issue is to be made."""
    github.answers.extend([*[(0, {})] * healthy, (code, {}), (code, {})])
    assert "issue 1 opened" in tell(github)
    assert len(github.issues) == 1


@pytest.mark.parametrize(
    ("code", "headers"),
    [
        (429, {"retry-after": "1"}),
        (403, {"retry-after": "60"}),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()) + 5)}),
        (429, {}),
    ],
)
def test_a_rate_limit_is_waited_for(github: GitHub, code: int, headers: dict[str, str]) -> None:
    github.answers = [(code, headers)]
    assert "issue 1 opened" in tell(github)


def test_a_long_rate_limit_is_left_to_the_next_night(github: GitHub) -> None:
    reset = str(int(time.time()) + 3000)
    github.answers = [(403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset})]
    with pytest.raises(HostError, match="asks to wait"):
        tell(github)
    assert len(github.asked) == 1


@pytest.mark.parametrize("code", [401, 403, 404, 410, 422])
def test_a_refusal_is_not_asked_again(github: GitHub, code: int) -> None:
    github.answers = [(code, {})]
    with pytest.raises(HostError, match=str(code)) as caught:
        tell(github)
    assert "secret" not in str(caught.value)
    assert len(github.asked) == 1


def test_a_server_that_stays_broken(github: GitHub) -> None:
    github.answers.extend([(503, {})] * 100)
    with pytest.raises(HostError, match="503"):
        tell(github)
    assert not github.issues


def test_nobody_there() -> None:
    issues = Issues("http://127.0.0.1:9", "team/repo", "secret", pause=0.0)
    with issues, pytest.raises(HostError) as caught:
        issues.tell(TROUBLE)
    assert "secret" not in str(caught.value)


def test_a_cured_fault_without_an_issue_makes_none(github: GitHub) -> None:
    assert "no issue" in tell(github, later(closed="2026-11-03T00:00:00+00:00"))
    assert not github.issues
