"""Reset policies as pure values: when is a new session due? (I-8)"""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bordering import ODD
from holdfast.domain.reset_policy import Daily, Idle, Policy
from holdfast.errors import BadArgument
from worlds import local_ms

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
]
MOMENTS = st.integers(1_577_836_800_000, 1_893_456_000_000)  # 2020 to 2030
DAY = 24 * 3_600_000


@given(active=MOMENTS, passed=st.integers(-DAY, 3 * DAY))
def test_idle_is_due_exactly_when_that_long_has_passed(active: int, passed: int) -> None:
    assert (Idle(hours=2).due(active_at=active, now=active + passed) == "idle") == (
        passed >= 2 * 3_600_000
    )
    assert Idle(minutes=90, hours=1).due(active_at=active, now=active + 150 * 60_000) == "idle"
    assert Idle(minutes=90, hours=1).due(active_at=active, now=active + 150 * 60_000 - 1) is None


@given(
    now=MOMENTS,
    at=st.sampled_from(["00:00", "02:30", "03:00", "04:00", "23:59"]),
    tz=st.sampled_from(ZONES),
)
def test_daily_is_due_once_a_day_everywhere(now: int, at: str, tz: str) -> None:
    """Whatever the clocks do: somebody active just now is not reset, somebody away for
    two days is.
    """
    policy = Daily(at=at, tz=tz)
    assert policy.due(active_at=now, now=now) is None
    assert policy.due(active_at=now - 50 * 3_600_000, now=now) == "daily"
    boundaries = sum(
        policy.due(active_at=now + hour * 1_800_000, now=now + (hour + 1) * 1_800_000) is not None
        for hour in range(24 * 2 * 7)
    )
    assert boundaries in (7, 6, 8), "seven days have seven resets; a zone that skips a day has six"


@given(now=MOMENTS, passed=st.integers(0, 3 * DAY), tz=st.sampled_from(ZONES))
def test_once_due_a_policy_stays_due_until_there_is_activity(
    now: int, passed: int, tz: str
) -> None:
    policy = Idle(hours=5) | Daily(at="04:00", tz=tz)
    if policy.due(active_at=now, now=now + passed):
        assert policy.due(active_at=now, now=now + passed + 1)
        assert policy.due(active_at=now, now=now + passed + DAY)


def test_a_time_in_a_gap_is_due_within_the_hour_after_it() -> None:
    """2025-03-30 in Berlin: 02:00 becomes 03:00; 02:30 is never shown."""
    policy = Daily(at="02:30", tz="Europe/Berlin")
    active = local_ms("2025-03-30T01:59:00", "Europe/Berlin")
    assert (
        policy.due(active_at=active, now=local_ms("2025-03-30T01:59:59", "Europe/Berlin")) is None
    )
    assert (
        policy.due(active_at=active, now=local_ms("2025-03-30T03:30:00", "Europe/Berlin"))
        == "daily"
    )


def test_a_time_that_comes_twice_is_due_at_the_first() -> None:
    policy = Daily(at="02:30", tz="Europe/Berlin")
    first = local_ms("2025-10-26T02:30:00", "Europe/Berlin")
    second = local_ms("2025-10-26T02:30:00", "Europe/Berlin", fold=1)
    assert second - first == 3_600_000
    assert policy.due(active_at=first - 1, now=first) == "daily"
    assert policy.due(active_at=first, now=second + 1) is None


def test_either_gives_the_reason_of_the_one_that_is_due() -> None:
    now = int((datetime(2025, 1, 15, 12, tzinfo=UTC)).timestamp() * 1000)
    both = Idle(hours=20) | Daily(at="04:00")
    assert (
        both.due(active_at=now - int(timedelta(hours=10) / timedelta(milliseconds=1)), now=now)
        == "daily"
    )
    assert (
        both.due(active_at=now - int(timedelta(hours=7) / timedelta(milliseconds=1)), now=now)
        is None
    )
    late = Idle(hours=1) | Daily(at="04:00")
    assert (
        late.due(active_at=now - int(timedelta(hours=7) / timedelta(milliseconds=1)), now=now)
        == "idle"
    )
    three = late | Idle(minutes=1)
    assert three.due(active_at=now - 60_000, now=now) == "idle"


def test_no_policy_is_never_due() -> None:
    assert Policy().due(active_at=0, now=10**15) is None


@pytest.mark.parametrize("wrong", [{"at": "25:00"}, {"at": "soon"}, {"tz": "Europe/Atlantis"}])
def test_a_policy_that_makes_no_sense_is_refused_when_it_is_made(wrong: dict[str, str]) -> None:
    with pytest.raises(BadArgument):
        Daily(**wrong)


POLICIES = [Policy(), Idle(hours=1), Daily(), Daily(tz="Pacific/Apia"), Idle(hours=1) | Daily()]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_times_that_are_none_are_refused(policy: Policy) -> None:
    for odd in [*ODD, "1", 2**63, -(2**63), -math.inf]:
        for parameter in ("active_at", "now"):
            times = {"active_at": 1, "now": 1} | {parameter: odd}
            try:
                assert policy.due(**times) in (None, "idle", "daily")
            except BadArgument as refused:
                assert refused.parameter == parameter
            else:
                assert type(odd) in (int, float), odd


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_session_may_have_been_active_at_any_time_that_a_store_can_hold(policy: Policy) -> None:
    for active_at in (-(2**63) + 1, -1, 2**63 - 1):
        for now in (-62_000_000_000_000, 0, 253_000_000_000_000):
            assert policy.due(active_at=active_at, now=now) in (None, "idle", "daily")


@pytest.mark.parametrize("policy", [Daily(), Policy() | Daily(tz="Pacific/Apia")], ids=repr)
def test_a_day_that_no_calendar_has_is_refused(policy: Policy) -> None:
    for now in (-62_000_000_000_001, 253_000_000_000_001, 10**15, 2**62):
        with pytest.raises(BadArgument, match="`now` takes milliseconds"):
            policy.due(active_at=0, now=now)
