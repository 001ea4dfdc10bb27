"""What a patch says of itself: mail headers, and four headings that say why it is carried."""

from __future__ import annotations

import email
import email.policy
import re
from dataclasses import dataclass, field
from typing import Final

HEADINGS: Final = ("Why", "Upstream", "Proof", "Gone-when")
"""Why it exists, what upstream does instead, how it was proved, when it can go."""

_HEADING: Final = re.compile(rf"^({'|'.join(HEADINGS)}):[ \t]*", re.MULTILINE)
_DIFF: Final = re.compile(rb"^(?:---\n|---[ \t]*$|diff --git |--- [^\n]+\n\+\+\+ )", re.MULTILINE)
_FROM: Final = re.compile(rb"From [0-9a-f]{40} [^\n]*\n")
_PREFIX: Final = re.compile(r"^(?:\[PATCH[^\]]*\] *)+")


@dataclass(frozen=True, kw_only=True)
class Mail:
    """The part of a patch file before its diff."""

    author: str = ""
    date: str = ""
    subject: str = ""
    body: str = ""
    headings: dict[str, str] = field(default_factory=dict)
    """What stands behind each of ``HEADINGS`` that is there."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Every required part that is missing or empty."""
        there = {"From": self.author, "Subject": self.subject}
        missing = [f"the mail header has no {name}:" for name, text in there.items() if not text]
        return (
            *missing,
            *(f"the header has no {name}:" for name in HEADINGS if not self.headings.get(name)),
        )

    @property
    def message(self) -> str:
        """The commit's message: subject, empty line, body."""
        return f"{self.subject}\n\n{self.body}\n" if self.body else f"{self.subject}\n"


def read_mail(data: bytes) -> Mail:
    """The mail header of a patch file; of a bare diff, one in which everything is empty.

    A heading's text goes on to the next heading, or to an empty line that a trailer such as
    ``Signed-off-by`` follows.
    """
    start = _FROM.match(data)
    text = data[start.end() :] if start else data
    end = _DIFF.search(text)
    head = text[: end.start()] if end else text
    if not re.match(rb"[A-Za-z-]+:[ \t]", head):
        return Mail()
    mail = email.message_from_bytes(head, policy=email.policy.default)
    payload = mail.get_payload(decode=True)
    body = payload.decode(errors="replace") if isinstance(payload, bytes) else ""
    body = body.replace("\r\n", "\n").strip("\n")
    subject = _PREFIX.sub("", " ".join(str(mail["Subject"] or "").split()))
    return Mail(
        author=str(mail["From"] or "").strip(),
        date=str(mail["Date"] or "").strip(),
        subject=subject,
        body=body,
        headings=_headings(body),
    )


def _headings(body: str) -> dict[str, str]:
    marks = list(_HEADING.finditer(body))
    ends = [*(mark.start() for mark in marks[1:]), len(body)]
    found = {}
    for mark, end in zip(marks, ends, strict=False):
        text = re.split(r"\n\n(?=[A-Z][A-Za-z-]+-by: )", body[mark.end() : end])[0]
        found[mark[1]] = " ".join(text.split())
    return found
