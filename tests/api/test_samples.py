"""The samples of the last hour."""

from api.metrics import Metrics
from api.samples import GROUPS_MAX, LAG_SAMPLES_MAX, SAMPLES_MAX, LagSum, SampleLog
from log_tables.clock import ManualClock


def sample_log(clock: ManualClock, metrics: Metrics, lags: list[LagSum]) -> SampleLog:
    return SampleLog(metrics, lambda: 7, lambda: lags, clock)


def test_rates_are_per_second_over_all_topics(clock: ManualClock) -> None:
    metrics = Metrics()
    log = sample_log(clock, metrics, [])
    log.sample()
    metrics.topic("a").produced(10, 1_000, 0.01)
    metrics.topic("b").produced(40, 500, 0.01)
    metrics.topic("b").fetched(5, 50, 0.01)
    metrics.topic("a").committed(50, 0.02)
    metrics.request_failed(40401)
    clock.advance(5_000)
    log.sample()
    (sample,) = log.samples()
    assert (sample.produced, sample.produced_bytes, sample.fetched) == (10.0, 300.0, 1.0)
    assert (sample.commits, sample.errors, sample.buffer_used) == (0.2, 0.2, 7)
    assert (sample.commit_p50_ms, sample.commit_p99_ms) == (25.0, 25.0)


def test_a_deleted_topic_takes_nothing_from_the_others(clock: ManualClock) -> None:
    metrics = Metrics()
    log = sample_log(clock, metrics, [])
    metrics.topic("a").produced(1_000, 1_000, 0.01)
    metrics.topic("a").committed(1_000, 0.01)
    log.sample()
    metrics.forget_topics(lambda _: True)
    clock.advance(5_000)
    log.sample()
    (sample,) = log.samples()
    assert (sample.produced, sample.commits, sample.commit_p99_ms) == (0.0, 0.0, 0.0)


def test_a_slow_commit_is_beyond_the_last_bound(clock: ManualClock) -> None:
    metrics = Metrics()
    log = sample_log(clock, metrics, [])
    log.sample()
    metrics.committed("a", 1, 100.0)
    clock.advance(5_000)
    log.sample()
    assert log.samples()[0].commit_p99_ms == 10_000.0


def test_an_hour_is_kept_and_no_more(clock: ManualClock) -> None:
    log = sample_log(clock, Metrics(), [LagSum("g", 3, 1.5, 30)])
    for _ in range(SAMPLES_MAX + 10):
        log.sample()
        clock.advance(5_000)
    lags = log.lags("g")
    assert len(log.samples()) == SAMPLES_MAX
    assert len(lags.at_ms) == LAG_SAMPLES_MAX
    assert (lags.records[0], lags.seconds[0], lags.size_bytes[0]) == (3, 1.5, 30)
    assert lags.at_ms == sorted(lags.at_ms)


def test_a_group_that_is_gone_is_forgotten(clock: ManualClock) -> None:
    lags = [LagSum("g", 3, 1.5, 30)]
    log = sample_log(clock, Metrics(), lags)
    log.sample()
    assert log.lags("g").records == [3]
    lags.clear()
    log.sample()
    log.sample()
    assert log.lags("g").records == []


def test_groups_beyond_the_bound_are_left_out(clock: ManualClock) -> None:
    lags = [LagSum(f"g{number}", 1, 1.0, 1) for number in range(GROUPS_MAX + 5)]
    log = sample_log(clock, Metrics(), lags)
    log.sample()
    kept = [each for each in lags if log.lags(each.group).records]
    assert len(kept) == GROUPS_MAX
