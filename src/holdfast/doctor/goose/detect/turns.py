"""Signs in the turns of a session of goose: answers lost, cut, doubled or in pieces, turns that
never ended.
"""

import bisect
import math
from collections.abc import Iterator

from holdfast.doctor.finding import Finding
from holdfast.doctor.goose.case import (
    CONTEXT,
    GooseCase,
    blocks,
    for_model,
    for_reader,
    is_context,
    is_made,
    is_prompt,
    is_result,
    last_for_model,
    model_of,
    output_tokens,
    words,
)
from holdfast.doctor.goose.pairs import pairing
from holdfast.doctor.goose.repeats import repeated_rows, signatures, split_runs
from holdfast.importers.goose.records import MS_FROM, GooseRow


def repeat_signs(case: GooseCase) -> Iterator[Finding]:
    rows = case.rows
    for index in repeated_rows(rows):
        measured = f"The message `{rows[index].message_id}` is stored again."
        yield case.finding("duplicate-rows", rows[index].place, measured)
    for run in split_runs(rows):
        measured = f"The answer `{rows[run.start].message_id}` is in {len(run)} rows."
        yield case.finding("token-split-rows", rows[run.start].place, measured)


def turn_signs(case: GooseCase) -> Iterator[Finding]:
    rows = case.rows
    for index in lost_replies(case):
        measured = (
            f"Nothing answers this prompt, and the ledger has {len(paid_replies(case))} "
            "paid replies."
        )
        yield case.finding("lost-turn", rows[index].place, measured)
    lost = set(lost_replies(case))
    for index in unanswered(case):
        if index not in lost:
            yield case.finding(
                "unanswered-prompt", rows[index].place, "Nothing answers this prompt."
            )
    yield from _ends(case)
    for row in rows:
        if is_merged(row):
            yield case.finding(
                "merged-users", row.place, f"It holds {len(blocks(row, 'text'))} texts."
            )
    for index, signature in doubled_thinking(rows):
        yield case.finding(
            "duplicate-thinking",
            rows[index].place,
            f"The signature {signature[:20]!r} is here again.",
        )


def _ends(case: GooseCase) -> Iterator[Finding]:
    if case.live:
        return
    cut = cut_answer(case)
    if cut is not None:
        yield case.finding(
            "cut-stream",
            case.rows[cut].place,
            "It tells no output tokens; other answers do.",
        )
    last = unfinished(case.rows)
    if last is not None:
        yield case.finding(
            "unfinished-turn",
            case.rows[last].place,
            "The session ends on a tool's result.",
        )


def paid_replies(case: GooseCase) -> list[int]:
    """When replies were paid for that were no compactions."""
    return [paid.created or 0 for paid in case.usage_rows if not paid.is_compaction]


def lost_replies(case: GooseCase) -> list[int]:
    """Prompts with nothing after them, when the ledger knows more replies than the session holds:
    those in whose time a reply was paid for, or else the last ones.
    """
    rows, paid = case.rows, paid_replies(case)
    stored = {
        row.message_id
        for row in rows
        if row.role == "assistant" and (row.metadata or {}).get("usage")
    }
    last = _last_prompt(rows) if case.live else None
    bare = [index for index in _bare_prompts(rows) if index != last]
    missing = len(paid) - len(stored)
    if missing < 1 or not bare:
        return []
    times, known = sorted(paid), set(bare)
    timely = [
        index
        for index, (start, end) in _spans(rows).items()
        if index in known and _falls(times, start, end)
    ]
    return (timely or bare)[-missing:]


def unanswered(case: GooseCase) -> list[int]:
    """Prompts that began a turn of which nothing was stored: goose puts its context behind such a
    prompt, and nothing else follows. Two prompts in a row without it were typed for one turn.
    """
    rows = case.rows
    prompts = [
        index
        for index, row in enumerate(rows)
        if is_prompt(row) and not (row.problem or row.content_problem)
    ]
    found = []
    for index, end in zip(prompts, [*prompts[1:], len(rows)], strict=False):
        is_last = end == len(rows)
        following = rows[index + 1 : end]
        if (
            all(map(is_context, following))
            and (following or is_last)
            and not (is_last and case.live)
        ):
            found.append(index)
    return found


def cut_answer(case: GooseCase) -> int | None:
    """The last answer that all see, if it lacks the count of tokens that those before it have, or
    those that the same model gave elsewhere.
    """
    rows = case.rows
    last = _last_answer(rows)
    if last is None:
        return None
    answer = rows[last]
    if blocks(answer, "toolRequest") or output_tokens(answer) is not None:
        return None
    # Some providers never count tokens; their answers are whole without.
    counted = model_of(answer) in case.counted
    for row in rows[:last]:
        counted = counted or (
            row.role == "assistant" and output_tokens(row) is not None
        )
    if not counted or any(last in run for run in split_runs(rows)):
        return None
    following = rows[last + 1] if last + 1 < len(rows) else None
    if following is not None and is_made(following) and following.role == "assistant":
        return None  # it was marked as cut when the store was healed
    return last


def _last_answer(rows: tuple[GooseRow, ...]) -> int | None:
    """The last answer in words that both the model and the reader see."""
    for index in range(len(rows) - 1, -1, -1):
        row = rows[index]
        if row.role != "assistant" or is_made(row):
            continue
        if for_model(row) and for_reader(row) and words(row).strip():
            return index
    return None


def unfinished(rows: tuple[GooseRow, ...]) -> int | None:
    """The result on which a session ends. With a call still open, the turn is told by that call."""
    last = last_for_model(rows)
    if last is None or rows[last].role != "user" or not is_result(rows[last]):
        return None
    return (
        None
        if any(call.row > _last_prompt(rows) for call in pairing(rows).alone)
        else last
    )


def is_merged(row: GooseRow) -> bool:
    """Whether a user row holds a prompt and the context that goose adds in a row of its own."""
    added = [
        str(block.get("text")).startswith(CONTEXT) for block in blocks(row, "text")
    ]
    return row.role == "user" and any(added) and not all(added)


def doubled_thinking(rows: tuple[GooseRow, ...]) -> list[tuple[int, str]]:
    """Rows with signed thinking that another row has too, the one with the call aside."""
    places: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        if for_model(row):
            for _, signature in signatures(row):
                places.setdefault(str(signature), []).append(index)
    found: list[tuple[int, str]] = []
    for signature, indexes in places.items():
        if len(indexes) > 1:
            kept = next(
                (index for index in indexes if blocks(rows[index], "toolRequest")),
                indexes[0],
            )
            spare = indexes.copy()
            spare.remove(kept)
            found.extend((index, signature) for index in dict.fromkeys(spare))
    return sorted(found)


def _bare_prompts(rows: tuple[GooseRow, ...]) -> Iterator[int]:
    """Prompts that are followed by another prompt, or by nothing."""
    said = [
        index
        for index, row in enumerate(rows)
        if for_model(row) and not is_context(row)
    ]
    for place, index in enumerate(said):
        following = rows[said[place + 1]] if place + 1 < len(said) else None
        if is_prompt(rows[index]) and (following is None or is_prompt(following)):
            yield index


def _last_prompt(rows: tuple[GooseRow, ...]) -> int:
    return next(
        (index for index in range(len(rows) - 1, -1, -1) if is_prompt(rows[index])), -1
    )


def _spans(rows: tuple[GooseRow, ...]) -> dict[int, tuple[int, float]]:
    """From each prompt to the next one, in time."""
    prompts = [index for index, row in enumerate(rows) if is_prompt(row)]
    times = [*(_seconds(rows[index]) for index in prompts), math.inf]
    return {
        index: (int(times[place]), times[place + 1])
        for place, index in enumerate(prompts)
    }


def _falls(times: list[int], start: int, end: float) -> bool:
    """Whether one of these times, which are in order, lies in a span."""
    place = bisect.bisect_left(times, start)
    return place < len(times) and times[place] < end


def _seconds(row: GooseRow) -> int:
    created = row.created or 0
    return created // 1000 if created >= MS_FROM else created
