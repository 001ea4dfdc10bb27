"""llama-server's arguments for one start of a served suite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparkbuild.smoke.served.suite import Suite, Way


def flags(
    suite: Suite,
    way: Way,
    *,
    context: int,
    vision: Path | None,
    layers: int,
    depth: int = 0,
    more: Sequence[str] = (),
) -> list[str]:
    """All of them but the model; ``depth`` 0 drafts nothing.

    Verbosity 4 is what llama.cpp needs to tell where the weights lie.
    """
    server, drafts = suite.server, suite.drafts
    found = [
        *(("--mmproj", str(vision)) if vision else ()),
        *("--ctx-size", str(context), "--parallel", str(server.slots)),
        *("--ubatch-size", str(server.micro_batch), "--ctx-checkpoints", str(server.checkpoints)),
        *("--cache-type-k", way.cache_k, "--cache-type-v", way.cache_v),
        *("--flash-attn", "on" if way.flash_attention else "off"),
        *("--n-gpu-layers", str(layers), "--fit", "off", "--cache-ram", "0"),
        *("--offline", "--no-webui", "--log-colors", "off", "--log-verbosity", "4"),
        *server.flags,
        *way.flags,
    ]
    if depth and drafts:
        found += [*drafts.flags, drafts.depth_flag, str(depth)]
    return [*found, *more]
