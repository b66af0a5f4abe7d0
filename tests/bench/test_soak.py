"""How a soak is judged: what is lost or doubled, which requests count, what they cost, when things die."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench.soak.__main__ import report
from bench.soak.account import (
    NO_ANSWER,
    Attempt,
    Difference,
    Level,
    Numbers,
    Span,
    availability,
    difference,
    level,
)
from bench.soak.plan import Plan, Strike
from bench.soak.prices import PRICES, VERBS, read_prices
from bench.soak.senders import value
from bench.soak.soak import Result
from bench.soak.store import Bucket, billed


def numbers(sender: str, *noted: int) -> Numbers:
    made = Numbers()
    for number in noted:
        made.note(sender, number)
    return made


def test_a_record_that_is_nowhere_is_lost_and_one_that_is_there_again_is_doubled() -> None:
    acknowledged = [numbers("a", 0, 1, 2, 3), numbers("b", 0, 1)]
    found = difference(acknowledged, [numbers("a", 0, 1, 1, 1, 3), numbers("b", 1, 0)])
    assert (found.lost, found.doubled) == (1, 2)
    assert found.examples == ("a 2 is lost", "a 1 is there 3 times")


def test_all_of_a_sender_may_be_lost() -> None:
    assert difference([numbers("a", 0, 1)], [numbers("b", 0)])[:2] == (2, 0)


def test_a_record_that_nobody_acknowledged_may_be_there_once() -> None:
    assert difference([numbers("a", 0)], [numbers("a", 0, 1)])[:2] == (0, 0)
    assert difference([numbers("a", 0)], [numbers("a", 0, 1, 1)])[:2] == (0, 1)


def test_what_several_have_read_is_one() -> None:
    halves = [numbers("a", 0, 2), numbers("a", 1)]
    assert difference([numbers("a", 0, 1, 2)], halves)[:2] == (0, 0)
    assert difference([], [numbers("a", 0), numbers("a", 0)])[:2] == (0, 1)


def test_a_value_says_who_sent_it() -> None:
    found = Numbers()
    for number in range(3):
        found.note_value(value("http-0", number))
    assert found.total() == 3
    assert difference([numbers("http-0", 0, 1, 2)], [found])[:2] == (0, 0)


def attempt(begin: float, end: float, status: int = 200) -> Attempt:
    return Attempt(Span(begin, end), status)


def test_a_request_is_answered_by_2xx_within_ten_seconds() -> None:
    attempts = [attempt(0, 10), attempt(0, 10.5), attempt(0, 1, 503), attempt(0, 1, NO_ANSWER)]
    found = availability(attempts, [])
    assert (found.requests, found.answered, found.share) == (4, 1, 0.25)
    assert dict(found.others) == {200: 1, 503: 1, NO_ANSWER: 1}
    assert found.took_s == (10, 10, 10)


def test_requests_of_a_window_do_not_count_answered_or_not() -> None:
    windows = [Span(10, 15)]
    outside = [attempt(8, 9), attempt(16, 17, 503)]
    inside = [attempt(9, 11, NO_ANSWER), attempt(11, 12), attempt(14, 17, 503), attempt(9, 16)]
    assert availability([*outside, *inside], windows) == availability(outside, [])
    assert availability(inside, windows).share == 1


def test_windows_may_overlap() -> None:
    windows = [Span(10, 40), Span(12, 15), Span(50, 55)]
    asked = [attempt(begin, begin + 1) for begin in (8, 20, 39, 41, 48, 49, 55, 56)]
    assert availability(asked, windows).requests == 4


def test_memory_is_compared_after_the_first_quarter() -> None:
    found = level([100, 200, 200, 200, 210, 215, 220, 220])
    assert found == Level(200, 220)
    assert found.growth == pytest.approx(0.1)
    assert level([100, 200, 200]) is None


def test_each_minute_kills_a_gateway_in_turn_and_the_store_is_stopped_too() -> None:
    assert Plan(minutes=2).strikes() == [Strike(30, 0), Strike(60, None), Strike(90, 1)]
    assert Plan(minutes=1).strikes() == [Strike(30, 0), Strike(45, None)]
    hour = Plan().strikes()
    assert [strike.gateway for strike in hour].count(None) == 6
    assert [strike.gateway for strike in hour if strike.gateway is not None] == [0, 1] * 30


def test_the_clients_together_send_what_is_planned() -> None:
    plan = Plan(records_per_s=400)
    http = plan.http_clients * plan.request_records / plan.request_every_s
    assert http + plan.kafka_records_per_s == pytest.approx(400)


@pytest.mark.parametrize("wrong", [{"minutes": 0}, {"records_per_s": -1.0}, {"store_away_s": 90.0}])
def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"has to be more than 0|the store may be away"):
        Plan(**wrong)  # type: ignore[arg-type]


def test_prices_say_where_and_when_they_were_noted() -> None:
    prices = read_prices(PRICES)
    assert str(prices.year) in prices.source
    assert prices.usd({"PUT": 2_000, "GET": 10_000, "DELETE": 7}) == pytest.approx(0.014)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no table of prices"),
        ('{"source": "a list", "usd_per_1000": {}}', "missing required field `year`"),
        ('{"source": "a list", "year": 2026, "usd_per_1000": {"PUT": 1}}', "has to price PUT, COPY"),
        (
            '{"source": "a list", "year": 2026, "usd_per_1000": {'
            + ", ".join(f'"{v}": -1' for v in VERBS)
            + "}}",
            "below zero",
        ),
    ],
)
def test_a_wrong_table_of_prices_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_prices(path)


@pytest.mark.usefixtures("s3")
def test_requests_are_counted_as_they_are_billed_through_a_stop_of_the_store(tmp_path: Path) -> None:
    with Bucket(tmp_path) as bucket:
        store = bucket.open()
        before = bucket.requests()
        store.put("a", b"1")
        store.get("a")
        bucket.stop()
        bucket.start()
        store.head("a")
        assert [each.path for each in store.list("")] == ["a"]
        store.delete("a")
        made = bucket.requests() - before
    assert made == {"PUT": 1, "GET": 1, "HEAD": 1, "LIST": 1, "DELETE": 1}


def test_an_action_without_a_price_is_named() -> None:
    line = "who soak [now] 127.0.0.1 who ID s3_PutBucketAcl - /soak 200 - 0 0 1 1 - client -"
    with pytest.raises(RuntimeError, match="PutBucketAcl"):
        billed([line])
    assert billed([line.replace("PutBucketAcl", "PutObject").replace(" 200 - ", " 503 SlowDown ")]) == {}


SOUND = Result(
    seconds=60,
    acknowledged=500_000,
    log=Difference(0, 0, ()),
    delta=Difference(0, 0, ()),
    missed=0,
    read_again=3,
    failures=Counter(),
    fsck=[],
    availability=availability([attempt(0, 1), attempt(0, 1)], []),
    with_windows=availability([attempt(0, 1), attempt(0, 1), attempt(0, 1, 503), attempt(0, 11)], []),
    windows_s=5,
    memory_mb=[(100, 90), (100, 110), (100, 120), (100, 120)],
    requests=Counter(PUT=1_000, GET=10_000),
    deaths=Counter(maintain=1),
    query_failures=1,
    micro_batches=4,
    merges=2,
)


def test_a_sound_soak_ends_with_zero_and_tells_what_a_million_records_cost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(Plan(minutes=1), SOUND, read_prices(PRICES)) == 0
    said = capsys.readouterr().out
    for row in (
        "| … answered 2xx within 10 s, windows included | 50.0000% |",
        "| … answered 2xx within 10 s | 100.0000% |",
        "| memory of gateway 2, MB, each minute | 90 110 120 120 |",
        "| growth between them | +9.1% |",
        "| S3 requests a million records | 22,000 |",
        "| USD a million records | 0.0180 |",
        "| programs that ended by themselves | maintain: 1 |",
    ):
        assert row in said


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (replace(SOUND, log=Difference(1, 0, ("a 2 is lost",))), "BROKEN: 1 lost"),
        (replace(SOUND, log=Difference(0, 2, ())), "BROKEN: 2 doubled"),
        (replace(SOUND, delta=Difference(1, 1, ())), "1 lost in Spark's table, 1 doubled in Spark's table"),
        (replace(SOUND, missed=4), "BROKEN: 4 missed by the group"),
        (replace(SOUND, failures=Counter({"HTTP 400": 1})), "BROKEN: 1 refused for good"),
        (replace(SOUND, fsck=["a hole at 7"]), "- a hole at 7\nBROKEN: 1 problems that fsck found"),
    ],
)
def test_a_broken_soak_ends_with_one_and_says_why(
    broken: Result, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(Plan(minutes=1), broken, read_prices(PRICES)) == 1
    assert said in capsys.readouterr().out
