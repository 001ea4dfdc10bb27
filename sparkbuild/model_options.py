"""What ``sparkbuild inspect`` is told of the server that is to be: its flags, its build, memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import rich_click as click

from sparkbuild.errors import UsageError
from sparkbuild.model.types import CACHE_TYPES

DRAFTS: Final = (
    "draft-mtp", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
)  # fmt: skip
"""What llama-server's ``--spec-type`` takes (common/speculative.cpp of b11434), less what needs a
draft model besides: its memory could not be added up."""

_SIZE: Final = re.compile(
    r"(?P<number>\d{1,15}(?:\.\d{1,9})?) ?(?:(?P<unit>[kmgt])(?P<kind>i?b)?|b)?", re.IGNORECASE
)
_UNITS: Final = " kmgt"
_COUNT: Final = click.IntRange(min=1)
_CACHE: Final = click.Choice(CACHE_TYPES)


def size_of(text: str) -> int:
    """Bytes of a size: K, M, G and T are powers of 1024 (as KiB ...), KB ... those of 1000.

    Raises UsageError where the text is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is no size",
            problems=["expected a number of bytes, or one with a unit: 119G, 2048MiB, 64GB"],
            next_step="give --available such a size",
        )
    base = 1000 if (match["kind"] or "").lower() == "b" else 1024
    power = _UNITS.index((match["unit"] or " ").lower())
    return int(float(match["number"]) * base**power)


_OPTIONS: Final = (
    click.option(
        "--mmproj",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The model's vision tower.",
    ),
    click.option(
        "--build",
        type=click.Path(path_type=Path),
        metavar="DIR|WHEEL",
        help="The build that is to serve it: a folder with llama-server and its libraries, or with "
        "bin/, or a wheel. It may be one for another machine: nothing is started. Without it, what "
        "only a build can tell is not tried.",
    ),
    click.option(
        "--toolkit",
        metavar="NAME|ROOT",
        help="The CUDA toolkit that GPU code is compiled with: whether it breaks a type of MODEL's "
        "tensors. Default: the one that the build itself names.",
    ),
    click.option(
        "--variant",
        metavar="NAME",
        help="The variant that is built with it: its patches may work around what the toolkit "
        "breaks.",
    ),
    click.option(
        "--arch",
        "architectures",
        multiple=True,
        metavar="ARCH",
        help="Architecture that the toolkit is judged for; may be given again. Default: 121a.",
    ),
    click.option(
        "--ctx",
        "context",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Tokens of all slots together (--ctx-size). Default: what the model was trained for.",
    ),
    click.option(
        "--slots",
        type=_COUNT,
        default=1,
        show_default=True,
        metavar="N",
        help="Slots (--parallel).",
    ),
    click.option(
        "--kv",
        type=_CACHE,
        default="f16",
        show_default=True,
        metavar="TYPE",
        help=f"Type of the KV cache (--cache-type-k): {', '.join(CACHE_TYPES)}.",
    ),
    click.option(
        "--kv-v",
        type=_CACHE,
        metavar="TYPE",
        help="Type of its values (--cache-type-v). Default: as --kv.",
    ),
    click.option(
        "--drafts",
        multiple=True,
        type=click.Choice(DRAFTS),
        metavar="KIND",
        help="What drafts (--spec-type); may be given again. draft-mtp is the model's own NextN "
        f"block; {', '.join(DRAFTS[1:])} take earlier text. Default: nothing.",
    ),
    click.option(
        "--depth",
        type=_COUNT,
        default=3,
        show_default=True,
        metavar="N",
        help="Tokens of a draft (--spec-draft-n-max).",
    ),
    click.option(
        "--ubatch",
        type=_COUNT,
        default=512,
        show_default=True,
        metavar="N",
        help="Tokens computed at once (--ubatch-size).",
    ),
    click.option(
        "--flash-attn/--no-flash-attn",
        default=True,
        help="Whether flash attention is on (--flash-attn). Default: yes.",
    ),
    click.option(
        "--available",
        metavar="SIZE",
        help="Memory that the server can have, such as 119G. Default: MemAvailable of this "
        "machine.",
    ),
)

_Command = TypeVar("_Command", bound=Callable[..., Any])


def server_options(command: _Command) -> _Command:
    """Give a command these options, in this order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
