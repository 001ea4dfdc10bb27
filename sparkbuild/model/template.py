"""Chat templates: do they parse.

Jinja2 reads them here and llama.cpp's own engine (common/jinja) in a server: the two know nearly
the same language, and llama.cpp's has the last word.
"""

from __future__ import annotations

from typing import Final

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_CHARACTERS: Final = 1 << 20
"""Of a template; the longest of published models have 40,000."""


class _Generation(Extension):
    """``{% generation %}``, which transformers has and llama.cpp passes over."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The block's content, as if the tag were not there."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def environment() -> ImmutableSandboxedEnvironment:
    """What templates are read with; whatever they call is looked at first."""
    return ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
    )


def fault(template: str) -> str:
    """Why a template does not parse; empty where it does."""
    if len(template) > MOST_CHARACTERS:
        return f"{len(template):,} characters, expected at most {MOST_CHARACTERS:,}"
    try:
        environment().parse(template)
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    except RecursionError:
        return "it is nested too deeply"
    return ""
