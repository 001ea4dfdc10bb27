"""The checks, in order: each asks the binaries something and compares with what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import httpx
import numpy as np

from sparkbuild.llama.answers import Completion
from sparkbuild.llama.log import Entry, scan
from sparkbuild.llama.memory import MIB
from sparkbuild.smoke import identity
from sparkbuild.smoke.compare import Comparisons
from sparkbuild.smoke.context import SLOT, Context
from sparkbuild.smoke.reference import Array, nmse
from sparkbuild.smoke.suite import GreedyCase

CheckFunction = Callable[[Context, Comparisons], str]
"""Makes the comparisons and returns the summary for the case that all are well."""


@dataclass(frozen=True, kw_only=True)
class Checker:
    """A check: its name, what it wants in words, whether it needs a living server."""

    name: str
    expected: str
    function: CheckFunction
    needs_server: bool = True


def key_enforced(context: Context, compare: Comparisons) -> str:
    """Without the key, and with a wrong one, nothing but ``/health`` answers."""
    stranger = context.running.stranger
    asks: tuple[tuple[str, Callable[[dict[str, str]], httpx.Response]], ...] = (
        ("GET /v1/models", lambda h: stranger.get("/v1/models", headers=h)),
        ("GET /props", lambda h: stranger.get("/props", headers=h)),
        (
            "POST /completion",
            lambda h: stranger.post("/completion", headers=h, json={"prompt": "x", "n_predict": 1}),
        ),
    )
    for name, ask in asks:
        for whose, headers in (("no key", {}), ("a wrong key", {"Authorization": "Bearer x"})):
            compare.equal(f"{name} with {whose}", 401, ask(headers).status_code)
    return f"401 to {compare.made} requests without the key"


def models_offered(context: Context, compare: Comparisons) -> str:
    """``/v1/models`` offers this model, with the promised capabilities and vocabulary."""
    wanted = context.suite.offers.capabilities
    compare.expected = f"one model, {context.model}, capabilities {list(wanted)}"
    models = context.api.models()
    compare.equal("models", [str(context.model)], [entry.id for entry in models.data])
    for entry in models.models:
        compare.equal("capabilities", sorted(wanted), sorted(entry.capabilities))
    sizes = {len(values) for values in context.logprobs.first_token.values()}
    for data in models.data:
        compare.equal("n_vocab", sizes, {data.meta.n_vocab})
    compare.equal("model_path of /props", str(context.model), context.api.props().model_path)
    return f"{context.model.name}, capabilities {list(wanted)}"


def tokenizer_round_trip(context: Context, compare: Comparisons) -> str:
    """Recorded texts become the recorded tokens, and these the texts again."""
    for case in context.suite.tokenizer:
        compare.tokens(repr(case.text), case.tokens, context.api.tokenize(case.text))
        compare.equal("text back", case.text, context.api.detokenize(case.tokens))
    return f"{len(context.suite.tokenizer)} texts, both ways"


def greedy_tokens(context: Context, compare: Comparisons) -> str:
    """Every prompt's greedy continuation is the recorded one."""
    for case in context.suite.greedy:
        compare.tokens(case.name, case.tokens, _ordinary(case, context.answer(case)))
    total = sum(len(case.tokens) for case in context.suite.greedy)
    return f"{total} tokens after {len(context.suite.greedy)} prompts"


def greedy_again(context: Context, compare: Comparisons) -> str:
    """Asked a second time, the server gives the same answers, word for word."""
    for case in context.suite.greedy:
        compare.equal(case.name, context.answer(case), context.again(case))
    return f"{compare.made} answers, word for word"


def greedy_together(context: Context, compare: Comparisons) -> str:
    """Asked all at once, the server gives the answers that it gives one at a time."""
    cases = context.suite.greedy
    alone = [context.answer(case) for case in cases]
    pool = ThreadPoolExecutor(max_workers=max(1, len(cases)))
    try:
        jobs = [pool.submit(context.api.complete, case.prompt, count=case.count) for case in cases]
        together = [job.result() for job in jobs]
    finally:  # no waiting: after Ctrl-C the server is stopped, which ends the requests
        pool.shutdown(wait=False, cancel_futures=True)
    for case, first, second in zip(cases, alone, together, strict=True):
        compare.equal(case.name, first, second)
    return f"{len(cases)} requests at once"


def endings(context: Context, compare: Comparisons) -> str:
    """Answers are not empty, and end for the recorded reason."""
    for case in context.suite.greedy:
        found = context.answer(case)
        compare.equal(f"{case.name}: content", case.text, found.content)
        compare.equal(f"{case.name}: stop_type", case.stop, found.stop_type)
        compare.equal(f"{case.name}: tokens_evaluated", len(case.prompt), found.tokens_evaluated)
        compare.equal(f"{case.name}: tokens_predicted", case.count, found.tokens_predicted)
        compare.equal(f"{case.name}: truncated", False, found.truncated)
    return "all ended as recorded"


def chat_answers(context: Context, compare: Comparisons) -> str:
    """The chat template makes the recorded prompts, and the answers are the recorded texts."""
    for case in context.suite.chat:
        compare.tokens(f"{case.name}: template", case.prompt, context.api.templated(case.user))
        found = context.api.chat(case.user, count=len(case.tokens))
        compare.equal(f"{case.name}: choices", 1, len(found.choices))
        for choice in found.choices:
            compare.equal(f"{case.name}: content", case.text, choice.message.content)
            compare.equal(f"{case.name}: finish_reason", case.finish, choice.finish_reason)
        counts = (found.usage.prompt_tokens, found.usage.completion_tokens)
        compare.equal(f"{case.name}: usage", (len(case.prompt), len(case.tokens)), counts)
    return f"{len(context.suite.chat)} chats"


def first_logprobs(context: Context, compare: Comparisons) -> str:
    """The first token's log-probabilities, over the whole vocabulary, are the reference's."""
    limit = context.suite.logprobs.nmse.limit
    compare.expected = f"NMSE at most {limit:g} for every prompt, no NaN, the same again"
    worst = drift = 0.0
    prompts = {case.name: case.prompt for case in context.suite.greedy}
    for name, recorded in context.logprobs.first_token.items():
        expected = np.asarray(recorded)
        values = [_logprobs(context, prompts[name], len(recorded)) for _ in range(2)]
        error, repeated = (nmse(found, expected) for found in values)
        # A NaN compares as False, so that it fails here.
        compare.holds(f"{name}: NMSE {error:.3g} of {len(recorded)}", error <= limit)
        drift = max(drift, abs(repeated - error))
        compare.holds(f"{name}: NMSE {repeated:.3g} when asked again", repeated <= limit)
        worst = max(worst, error, repeated)
    return (
        f"worst NMSE {worst:.3g} of {len(context.logprobs.first_token)} prompts, drift {drift:.3g}"
    )


def log_clean(context: Context, compare: Comparisons) -> str:
    """The server's log holds no line that tells of a fault; what else it tells is counted."""
    extra = [
        Entry(kind="of this suite", severity="fault", pattern=entry.pattern, reason=entry.reason)
        for entry in context.suite.log
    ]
    found = scan(context.log, extra=extra)
    compare.holds("nothing was logged", found.lines > 0)
    compare.holds(str(found), not found.of("fault"))
    for seen in found.of("fault"):
        compare.holds(str(seen), condition=False)
    return "; ".join([str(found), *(str(seen) for seen in found.of("warning"))])


def gone_without_trace(context: Context, compare: Comparisons) -> str:
    """TERM is enough, the port is free, the memory is back."""
    missing = int(context.suite.memory.missing.limit)
    compare.expected = (
        f"exit status 0 after TERM, port free, at most {missing} MiB missing within "
        f"{context.suite.memory.wait.limit:g} s"
    )
    end = context.running.stop()
    told = f"it was {end.strike}" if end.strike else f"it had ended by itself: {end.how}"
    compare.holds(told, end.alive_until_asked and not end.strike)
    compare.holds(f"KILL was needed after {context.running.limits.stop:g} s", end.gentle)
    compare.equal("end", "exit status 0", end.how)
    compare.holds(f"port {context.running.port} is still taken", end.port_free)
    memory = (
        f"MemAvailable {end.before.available // MIB} MiB before, {end.lowest // MIB} at the "
        f"lowest, {end.after.available // MIB} after, {end.missing // MIB} missing without an owner"
    )
    compare.holds(memory, end.missing <= missing * MIB)
    return f"{end.how}, {memory}"


CHECKS: Final = (
    Checker(
        name="version printed",
        expected="the pin",
        function=identity.version_printed,
        needs_server=False,
    ),
    Checker(name="version served", expected="the pin", function=identity.version_served),
    Checker(name="API key", expected="401 without the key", function=key_enforced),
    Checker(name="models", expected="the suite's model", function=models_offered),
    Checker(name="tokenizer", expected="recorded tokens and texts", function=tokenizer_round_trip),
    Checker(name="greedy tokens", expected="recorded tokens", function=greedy_tokens),
    Checker(name="greedy again", expected="identical answers", function=greedy_again),
    Checker(name="endings", expected="recorded texts and stop types", function=endings),
    Checker(name="log-probabilities", expected="the reference's", function=first_logprobs),
    Checker(name="concurrent", expected="the same answers as alone", function=greedy_together),
    Checker(name="chat", expected="recorded texts and finish reasons", function=chat_answers),
    Checker(name="end", expected="gone without a trace", function=gone_without_trace),
    Checker(name="log", expected="no fault", function=log_clean, needs_server=False),
)
"""In order, after ``model`` and ``start``, which make what these need."""


def _ordinary(case: GreedyCase, found: Completion) -> tuple[int, ...]:
    """The tokens, without the end token where one is due: some builds return it, some do not."""
    return found.tokens[: len(case.tokens)] if case.stop == "eos" else found.tokens


def _logprobs(context: Context, prompt: tuple[int, ...], vocabulary: int) -> Array:
    """Log-probabilities by token id, [vocabulary]; NaN where the server gave none."""
    found = context.api.complete(prompt, count=1, slot=SLOT, probabilities=vocabulary)
    values = np.full(vocabulary, np.nan)
    for position in found.completion_probabilities[:1]:
        for entry in position.top_logprobs:
            if entry.logprob is not None and 0 <= entry.id < vocabulary:
                values[entry.id] = entry.logprob
    return values
