"""The integration tests of kafka-python, confluent-kafka and aiokafka, unchanged, at the Kafka listener.

tests/system/kafka_suites lists those that pass, and the others with the reason.
"""

from pathlib import Path

import pytest

from tests.kit.kafka import kafka_gateway
from tests.kit.kafka_suites import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, NEWEST, Suite

pytestmark = pytest.mark.torture

NEWEST_ALONE = {
    "test_consumer_integration.py::test_kafka_version_infer",
    "test_admin_integration.py::test_describe_configs_broker_resource_returns_configs",
}
"""They pass where the version that they are told is the one that the listener looks like."""


@pytest.mark.parametrize("suite", [KAFKA_PYTHON, CONFLUENT, AIOKAFKA], ids=lambda suite: suite.name)
def test_each_test_is_listed_or_excluded_for_a_reason(suite: Suite) -> None:
    assert sorted([*suite.listed(), *suite.excluded()]) == sorted(suite.collected())
    assert all(suite.excluded().values())


@pytest.mark.parametrize("version", [NEWEST, "3.0", "2.4"])
def test_the_listed_tests_of_kafka_python_pass(tmp_path: Path, version: str) -> None:
    """They run once more as a client of an older Kafka, for which some are skipped. One commits an offset of
    the second partition of a topic that it makes by naming it.
    """
    tests = [test for test in KAFKA_PYTHON.listed() if version == NEWEST or test not in NEWEST_ALONE]
    with kafka_gateway(tmp_path / "root", num_partitions=2) as gateway:
        outcome = KAFKA_PYTHON.run(gateway.bootstrap, version, tests)
    skipped = set() if version == NEWEST else outcome.that("skipped")
    assert outcome.that("passed") | skipped == {*tests}, outcome.said


SKIPPED = {
    "classic": {"consumer/test_consumer_upgrade_downgrade.py::test_consumer_upgrade_downgrade"},
    "consumer": {
        "consumer/test_consumer_error.py::test_consume_error_commit",
        "consumer/test_consumer_error.py::test_consume_error_store_offsets",
    },
}
"""By the protocol of groups, the tests that the suite itself leaves out."""


@pytest.mark.parametrize("protocol", SKIPPED)
def test_the_listed_tests_of_confluent_kafka_pass(tmp_path: Path, protocol: str) -> None:
    """Some tests expect that a session shorter than Kafka's minimum is refused."""
    with kafka_gateway(tmp_path / "root", group_min_session_timeout_ms=6_000) as gateway:
        outcome = CONFLUENT.run(gateway.bootstrap, protocol, CONFLUENT.listed())
    assert outcome.that("passed") == {*CONFLUENT.listed()} - SKIPPED[protocol], outcome.said


def test_the_listed_tests_of_aiokafka_pass(tmp_path: Path) -> None:
    """Some begin with a topic that nobody has made."""
    with kafka_gateway(tmp_path / "root", num_partitions=2) as gateway:
        outcome = AIOKAFKA.run(gateway.bootstrap, NEWEST, AIOKAFKA.listed())
    assert outcome.that("passed") == {*AIOKAFKA.listed()}, outcome.said
