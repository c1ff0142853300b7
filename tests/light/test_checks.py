"""Checks of a client's parameters that need no client."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import ParameterError
from spvfilter.light.checks import birthday_of

ZONES = [timezone(timedelta(hours=hours)) for hours in range(-12, 15)]


@given(st.dates(date(1970, 1, 3), date(2100, 1, 1)), st.sampled_from(ZONES), st.times())
def test_date_begins_before_every_moment_of_that_date(day: date, zone: timezone, time: object) -> None:
    moment = datetime.combine(day, time, zone)  # type: ignore[arg-type]
    assert birthday_of(day) <= birthday_of(moment) < birthday_of(day + timedelta(days=1)) + 26 * 3_600


@given(st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)))
def test_datetime_without_a_zone_is_local_time(moment: datetime) -> None:
    assert birthday_of(moment) == birthday_of(moment.astimezone(UTC)) == int(moment.timestamp())


def test_times_before_1970_mean_all_blocks() -> None:
    assert birthday_of(date(1970, 1, 1)) == birthday_of(date.min) == birthday_of(datetime(1900, 1, 1, tzinfo=UTC)) == 0


@pytest.mark.parametrize("value", ["2024-01-31", 1.5, True, -1, None])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(ParameterError, match="a date, a datetime, or a Unix time as a whole number, not"):
        birthday_of(value)  # type: ignore[arg-type]
