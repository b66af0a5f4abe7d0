"""The settings of this gateway that Kafka has a name for. Clients read them; only its owner changes them."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ingest.settings import Settings

_FIELDS: Mapping[str, str] = {
    "auto.create.topics.enable": "auto_create_topics_enable",
    "connections.max.idle.ms": "kafka_connections_max_idle_ms",
    "group.max.session.timeout.ms": "group_max_session_timeout_ms",
    "group.max.size": "group_max_size",
    "group.min.session.timeout.ms": "group_min_session_timeout_ms",
    "max.connections": "max_connections",
    "max.connections.per.ip": "max_connections_per_ip",
    "num.partitions": "num_partitions",
    "offsets.retention.minutes": "offsets_retention_minutes",
    "offsets.topic.num.partitions": "offsets_topic_num_partitions",
    "socket.request.max.bytes": "max_request_bytes",
    "ssl.client.auth": "ssl_client_auth",
}
"""The settings of a gateway, by Kafka's names."""


class BrokerSetting(NamedTuple):
    """A setting, its default, and what it is for."""

    name: str
    value: bool | int | str
    default: bool | int | str
    meaning: str


def broker_settings(settings: Settings) -> Iterator[BrokerSetting]:
    """All of them, by name."""
    meaning = Settings.model_fields["kafka_advertised_listener"].description or ""
    yield BrokerSetting("advertised.listeners", _advertised(settings), "", meaning)
    for name, field in _FIELDS.items():
        about = Settings.model_fields[field]
        yield BrokerSetting(name, getattr(settings, field), about.default, about.description or "")


def _advertised(settings: Settings) -> str:
    """As Kafka writes an address: with the protocol of security that clients use there."""
    if not settings.kafka_advertised_listener:
        return ""
    words = ["SASL"] if settings.authentication_methods else []
    words.append("SSL" if settings.ssl_certfile else "PLAINTEXT")
    return f"{'_'.join(words)}://{settings.kafka_advertised_listener}"
