"""What is wrong with an answer: it never came, it is garbled, or it is another one."""

from __future__ import annotations

import ast
import json
import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rapidfuzz.distance import Levenshtein

from sparkbuild.smoke.served.suite import Expected, Garble
from sparkbuild.smoke.served.talk import Reply

SILENT: Final = "no answer"
"""The group of answers that never came: what fills the budget is to be looked at, not the model's
knowledge."""
GARBLED: Final = "garbled"
_SHOWN: Final = 200
"""Characters of a text that a finding quotes."""
_DRAWN: Final = re.compile(r"([\s\-=_*#.~|])\1+")
"""What healthy texts repeat: spaces, rules, headings, dots. A run of it counts as one."""
_ENTROPY_FROM: Final = 40
_REPEATS_FROM: Final = 200
"""Characters; shorter texts say too little."""
_FENCE: Final = re.compile(r"```\w*[ \t]*\n(.*?)```", re.DOTALL)
_AROUND: Final = re.compile(r"^[\s\"'`*.]+|[\s\"'`*.]+$")


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """What is wrong; ``group`` where it belongs to another one than the check itself."""

    text: str
    group: str = ""


def judged(reply: Reply, expect: Expected, garble: Garble) -> Wrong | None:
    """What is wrong with a reply, worst kind first; None where it is right."""
    wrong = silent(reply) or garbled(reply, garble)
    if wrong:
        return wrong
    texts = list(mismatches(reply.content, expect))
    return Wrong(text="; ".join(texts)) if texts else None


def silent(reply: Reply) -> Wrong | None:
    """An answer that is empty or was cut: the model may never have begun with it."""
    if reply.content.strip() and reply.finish != "length":
        return None
    what = "content is empty" if not reply.content.strip() else "content was cut"
    text = (
        f"{what}: finish_reason {reply.finish!r} after {reply.tokens} tokens, of which "
        f"{len(reply.reasoning)} characters are reasoning"
    )
    return Wrong(group=SILENT, text=text)


def garbled(reply: Reply, garble: Garble) -> Wrong | None:
    """A text that no healthy model says, in the content or the reasoning."""
    for what, text in (("content", reply.content), ("reasoning", reply.reasoning)):
        told = monotony(text, garble)
        if told:
            return Wrong(group=GARBLED, text=f"{what}: {told}, {shown(text)}")
    return None


def monotony(text: str, garble: Garble) -> str:
    """In which way a text is too poor to be one; empty where it is not."""
    runs = re.finditer(r"(.)\1+", _DRAWN.sub(r"\1", text), re.DOTALL)
    length, character = max(((len(run.group()), run[1]) for run in runs), default=(0, ""))
    if length >= garble.run.limit:
        return f"{character!r} {length} times in a row"
    if "\ufffd" in text:
        return f"{text.count(chr(0xFFFD))} bytes that are no UTF-8"
    text = _DRAWN.sub(r"\1", text)
    if len(text) >= _ENTROPY_FROM and entropy(text) < garble.entropy.limit:
        return f"{entropy(text):.2f} bits a character"
    if len(text) >= _REPEATS_FROM:
        data = text.encode("utf-8", errors="replace")
        factor = len(data) / len(zlib.compress(data, 9))
        if factor > garble.repeats.limit:
            return f"zlib shortens it {factor:.1f} times"
    return ""


def entropy(text: str) -> float:
    """Bits a character, by how often each is there."""
    counts = Counter(text)
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values())


def mismatches(content: str, expect: Expected) -> Iterator[str]:
    """Everything about a content that is not as expected."""
    told = shown(content)
    if expect.equals is not None and content != expect.equals:
        yield f"expected {expect.equals!r}, found {told}"
    if expect.matches is not None and not re.search(expect.matches, content):
        yield f"expected a match of {expect.matches!r}, found {told}"
    if expect.lacks is not None and re.search(expect.lacks, content):
        yield f"expected no match of {expect.lacks!r}, found {told}"
    if expect.json is not None and _value(content) != expect.json:
        yield f"expected the JSON {json.dumps(expect.json)}, found {told}"
    if expect.python is not None:
        problem = _python(content, expect.python)
        yield from [f"{problem}, in {told}"] if problem else []


def wanted(expect: Expected) -> str:
    """What is expected, for a person."""
    parts = {
        "equals": expect.equals,
        "matches": expect.matches,
        "lacks": expect.lacks,
        "JSON": None if expect.json is None else json.dumps(expect.json),
        "Python that defines": expect.python,
    }
    return "; ".join(f"{key} {value!r}" for key, value in parts.items() if value is not None)


def shown(text: str) -> str:
    """A text as a finding quotes it."""
    more = f" and {len(text) - _SHOWN} characters more" if len(text) > _SHOWN else ""
    return f"{text[:_SHOWN]!r}{more}"


def plain(text: str) -> str:
    """A text without case, form and what stands around it, to see whether two say the same."""
    return _AROUND.sub("", unicodedata.normalize("NFKC", text)).casefold()


def misread(content: str, truth: str) -> int:
    """Characters that were read wrongly: the edit distance to the content or to one line of it.

    What stands around it (quotes, marks, a full stop) does not count, nor does case.
    """
    whole = plain(content)
    lines = [whole, *(_AROUND.sub("", line) for line in whole.splitlines())]
    return min(Levenshtein.distance(line, plain(truth)) for line in lines)


def _value(content: str) -> Any:
    """The JSON value that a content is; None where it is none."""
    blocks = _FENCE.findall(content)
    try:
        return json.loads(blocks[0] if len(blocks) == 1 else content)
    except ValueError:
        return None


def _python(content: str, name: str) -> str:
    """What is wrong with the Python in a content; empty where it defines the function."""
    blocks = _FENCE.findall(content)
    try:
        tree = ast.parse("\n".join(blocks) if blocks else content)
    except (SyntaxError, ValueError) as error:
        return f"expected Python, found what does not parse ({error})"
    functions = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return "" if name in functions else f"expected a function {name}, found {functions}"
