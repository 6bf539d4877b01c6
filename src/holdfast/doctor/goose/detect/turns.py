"""Signs in the turns of a session of goose: answers lost, cut, doubled or in pieces, turns that
never ended.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from itertools import zip_longest

from holdfast.doctor.finding import Findings
from holdfast.doctor.goose.case import (
    CONTEXT,
    GooseCase,
    Rows,
    blocks,
    for_model,
    for_reader,
    is_context,
    is_made,
    is_prompt,
    is_result,
    last_that,
    metadata_of,
    model_of,
    output_tokens,
    words,
)
from holdfast.doctor.goose.pairs import pairing
from holdfast.doctor.goose.repeats import repeated_rows, signatures, split_runs
from holdfast.importers.goose.records import MS_FROM, GooseRow


def repeat_signs(case: GooseCase) -> Findings:
    rows = case.rows
    for index in repeated_rows(rows):
        measured = f"The message `{rows[index].message_id}` is stored again."
        yield case.finding("duplicate-rows", rows[index], measured)
    for run in split_runs(rows):
        first = rows[run.start]
        measured = f"The answer `{first.message_id}` is in {len(run)} rows."
        yield case.finding("token-split-rows", first, measured)


def turn_signs(case: GooseCase) -> Findings:
    rows = case.rows
    # A prompt whose reply was paid for is told as that alone.
    lost = dict.fromkeys(lost_replies(case))
    for index in lost:
        measured = (
            f"Nothing answers this prompt, and the ledger has {len(paid_replies(case))} "
            "paid replies."
        )
        yield case.finding("lost-turn", rows[index], measured)
    for index in unanswered(case):
        if index not in lost:
            measured = "Nothing answers this prompt."
            yield case.finding("unanswered-prompt", rows[index], measured)
    yield from _ends(case)
    for row in rows:
        if is_merged(row):
            measured = f"It holds {len(blocks(row, 'text'))} texts."
            yield case.finding("merged-users", row, measured)
    for index, signature in doubled_thinking(rows):
        measured = f"The signature {signature[:20]!r} is here again."
        yield case.finding("duplicate-thinking", rows[index], measured)


def _ends(case: GooseCase) -> Findings:
    # Of a store in use, the end may just be under way.
    if case.live:
        return
    cut = cut_answer(case)
    if cut is not None:
        measured = "It tells no output tokens; other answers do."
        yield case.finding("cut-stream", case.rows[cut], measured)
    last = unfinished(case.rows)
    if last is not None:
        measured = "The session ends on a tool's result."
        yield case.finding("unfinished-turn", case.rows[last], measured)


def paid_replies(case: GooseCase) -> list[int]:
    """When replies were paid for that were no compactions."""
    return [paid.created or 0 for paid in case.usage_rows if not paid.is_compaction]


def lost_replies(case: GooseCase) -> list[int]:
    """Prompts with nothing after them, when the ledger knows more replies than the session holds:
    those in whose time a reply was paid for, or else the last ones.
    """
    rows = case.rows
    paid = paid_replies(case)
    stored = set()
    # By id: an answer in pieces was paid for once.
    for row in rows:
        if row.role == "assistant" and metadata_of(row).get("usage"):
            stored.add(row.message_id)
    bare = dict.fromkeys(_bare_prompts(rows))
    # The last prompt of a store in use may be being answered.
    if case.live:
        bare.pop(_last_prompt(rows), None)
    missing = len(paid) - len(stored)
    if missing < 1:
        return []
    timely = [index for index in _paid_in_time(rows, sorted(paid)) if index in bare]
    return (timely or list(bare))[-missing:]


def unanswered(case: GooseCase) -> list[int]:
    """Prompts that began a turn of which nothing was stored: goose puts its context behind such a
    prompt, and nothing else follows. Two prompts in a row without it were typed for one turn.
    """
    rows = case.rows
    prompts = []
    # What a row says that can't be read, nobody knows: it may be no prompt.
    for index, row in enumerate(rows):
        if is_prompt(row) and not row.problem and not row.content_problem:
            prompts.append(index)
    found = []
    for index, end in zip_longest(prompts, prompts[1:], fillvalue=len(rows)):
        is_last = end == len(rows)
        following = rows[index + 1 : end]
        if is_last and case.live:
            continue
        if all(map(is_context, following)) and (following or is_last):
            found.append(index)
    return found


def cut_answer(case: GooseCase) -> int | None:
    """The last answer that all see, if it lacks the count of tokens that those before it have, or
    those that the same model gave elsewhere.
    """
    rows = case.rows
    last = last_that(rows, _is_answer)
    if last is None:
        return None
    answer = rows[last]
    if blocks(answer, "toolRequest") or output_tokens(answer) is not None:
        return None
    # Some providers never count tokens; their answers are whole without.
    counted = model_of(answer) in case.counted
    for row in rows[:last]:
        if row.role == "assistant" and output_tokens(row) is not None:
            counted = True
    if not counted or any(last in run for run in split_runs(rows)):
        return None
    for following in rows[last + 1 : last + 2]:
        if is_made(following) and following.role == "assistant":
            return None  # it was marked as cut when the store was healed
    return last


def _is_answer(row: GooseRow) -> bool:
    """Whether a row is an answer in words that both the model and the reader see."""
    if row.role != "assistant" or is_made(row):
        return False
    return for_model(row) and for_reader(row) and bool(words(row).strip())


def unfinished(rows: Rows) -> int | None:
    """The result on which a session ends. With a call still open, the turn is told by that call."""
    last = last_that(rows, lambda row: for_model(row) and not is_context(row))
    if last is None or rows[last].role != "user" or not is_result(rows[last]):
        return None
    prompt = _last_prompt(rows)
    for call in pairing(rows).alone:
        if call.row > prompt:
            return None
    return last


def is_merged(row: GooseRow) -> bool:
    """Whether a user row holds a prompt and the context that goose adds in a row of its own."""
    if row.role != "user":
        return False
    added = set()
    for block in blocks(row, "text"):
        added.add(str(block.get("text")).startswith(CONTEXT))
    return len(added) == 2


def doubled_thinking(rows: Rows) -> list[tuple[int, str]]:
    """Rows with signed thinking that another row has too, the one with the call aside."""
    places: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        if for_model(row):
            for _, signature in signatures(row):
                places.setdefault(str(signature), []).append(index)
    found: list[tuple[int, str]] = []
    for signature, indexes in places.items():
        calling = [index for index in indexes if blocks(rows[index], "toolRequest")]
        # Providers want the thinking before the call that it led to.
        indexes.remove((calling or indexes)[0])
        found.extend((index, signature) for index in dict.fromkeys(indexes))
    return sorted(found)


def _bare_prompts(rows: Rows) -> Iterator[int]:
    """Prompts that are followed by another prompt, or by nothing."""
    bare: int | None = None
    for index, row in enumerate(rows):
        if not for_model(row) or is_context(row):
            continue
        if bare is not None and is_prompt(row):
            yield bare
        bare = index if is_prompt(row) else None
    if bare is not None:
        yield bare


def _last_prompt(rows: Rows) -> int:
    found = last_that(rows, is_prompt)
    return -1 if found is None else found


def _paid_in_time(rows: Rows, times: list[int]) -> Iterator[int]:
    """The prompts in whose time, up to the next one, a reply was paid for."""
    prompts = [index for index, row in enumerate(rows) if is_prompt(row)]
    begins = [_seconds(rows[index]) for index in prompts]
    spans = zip_longest(begins, begins[1:], fillvalue=math.inf)
    for index, (start, end) in zip(prompts, spans, strict=True):
        place = bisect_left(times, start)
        if place < len(times) and times[place] < end:
            yield index


def _seconds(row: GooseRow) -> int:
    created = row.created or 0
    return created // 1000 if created >= MS_FROM else created
