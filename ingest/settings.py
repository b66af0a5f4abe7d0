"""The settings of a gateway: a TOML file, then `LAKELOG_…` variables, then flags; the later wins.

The names are Kafka's where Kafka has one (`linger.ms` is `linger_ms`); docs/operating.md lists all.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from log_tables.cluster.credential import AuthenticationMethod
from log_tables.errors import InvalidConfig
from log_tables.limits import BATCH_MAX_BYTES, KIB, MIB, PARTITIONS_MAX, PEER_KEPT_S
from log_tables.store.file import unusable
from log_tables.store.store import Durability

CONFIG_FILE = "lakelog.toml"
"""Read from the working directory when no other file is named."""

SECRET = ("client", "peer_secret", "ssl_keyfile_password", "store_options")
"""Settings that hold secrets: no message shows them."""

CONFIG_VARIABLE = "LAKELOG_CONFIG"
"""Names another file, as `--config` does."""


LogFormat = Literal["text", "json"]


HostName = Annotated[str, Field(pattern=r"^(\*|[\w.-]+|[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*)$")]
"""A name or an address as it stands in a URL, without a port or brackets; * is any."""


Origin = Annotated[str, Field(pattern=r"^https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]+)?$")]
"""The origin of a page (RFC 6454): a scheme, a host, and a port where it is not the usual one."""


_LISTENER = r"^((\[[0-9a-fA-F:.]+\]|[\w.-]+):[0-9]{1,5})?$"


def _size(default: int, description: str, at_least: int, at_most: int | None = None) -> Any:
    return Field(default=ByteSize(default), ge=at_least, le=at_most, description=description)


class ClientSettings(BaseModel):
    """Credentials and certificates of commands with --url. A gateway does not use them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api_key: SecretStr = SecretStr("")
    api_key_file: str = ""
    user: str = ""
    password: SecretStr = SecretStr("")
    ca_file: str = ""
    certfile: str = ""
    keyfile: str = ""

    def plain(self) -> dict[str, str]:
        """The values, secrets too."""
        secrets = {"api_key": self.api_key, "password": self.password}
        return {**dict(self), **{name: secret.get_secret_value() for name, secret in secrets.items()}}


class Settings(BaseSettings):
    """Plain values; `load_settings` is how they are read. Sizes also take units: `"64 MiB"`."""

    model_config = SettingsConfigDict(env_prefix="LAKELOG_", extra="forbid", frozen=True)

    data: str = Field(
        default="./lakelog-data",
        min_length=1,
        description="Root of the tables: a directory, or an s3://, gs:// or az:// URL.",
    )
    store_options: dict[str, str] = Field(
        default={},
        repr=False,
        description="Object store options (endpoint, region, keys), besides the store's own variables.",
    )
    durability: Durability = Field(
        default="auto",
        description="Appends to a directory rely on its file system (auto), or on POSIX alone (strict).",
    )
    remote_root: str = Field(
        default="",
        description="Where remote.storage.enable moves old segments: a directory or a URL. Kept in the root.",
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(default=8082, ge=0, le=65_535, description="TCP port to listen on; 0 takes a free one.")
    kafka_listener: str = Field(
        default="",
        pattern=_LISTENER,
        description="HOST:PORT to listen on for Kafka's clients, such as 127.0.0.1:9092; empty: none.",
    )
    kafka_advertised_listener: str = Field(
        default="",
        pattern=_LISTENER,
        description="HOST:PORT that Kafka's clients are told; empty: made from kafka_listener.",
    )
    kafka_compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        default="none", description="How records are packed for Kafka's consumers, to spare the network."
    )
    kafka_connections_max_idle_ms: int = Field(
        default=600_000,
        ge=100,
        description="How long, in ms, a connection of a Kafka client may be idle before it is closed.",
    )
    producer_ids_max: int = Field(
        default=10_000,
        ge=1,
        description="Producer ids that this gateway gives to Kafka clients within 30 minutes; more wait.",
    )
    auto_create_topics_enable: bool = Field(
        default=True,
        description="Whether a Kafka client that asks for a topic by name makes it, as Kafka's do.",
    )
    advertised_url: str = Field(
        default="",
        pattern=r"^(https?://[^\s]+)?$",
        description="URL that clients are told, such as a load balancer's; empty: made from host and port.",
    )
    peer_url: str = Field(
        default="",
        pattern=r"^(https?://[^\s]+)?$",
        description="URL at which other gateways reach this one alone; empty: made from host and port.",
    )
    peer_secret: SecretStr | None = Field(
        default=None,
        description="The secret that the gateways of a cluster share; a local root has a file of it.",
    )
    peer_secret_file: str = Field(
        default="", description="A file with the peer secret, one a line; the first is the newest."
    )
    allowed_hosts: Annotated[tuple[HostName, ...], NoDecode] = Field(
        default=(),
        description="Names by which clients may reach it, besides those in its URLs; * is any.",
    )
    authentication_methods: Annotated[tuple[AuthenticationMethod, ...], NoDecode] = Field(
        default=(),
        description="How clients show who they are: api-key, scram, oidc, mtls. Empty: everybody may do all.",
    )
    audit_enable: bool = Field(
        default=True,
        description="Whether a gateway that authenticates its clients keeps an audit log, the topic __audit.",
    )
    audit_records_per_s_max: int = Field(
        default=100, ge=1, description="Events that this gateway adds to the audit log each second, at most."
    )
    audit_retention_ms: int = Field(
        default=90 * 24 * 60 * 60 * 1000, ge=-1, description="How long, in ms, events stay; -1 is for ever."
    )
    audit_retention_bytes: int = Field(
        default=256 * MIB, ge=-1, description="How large the audit log may become, in bytes; -1 is no bound."
    )
    oidc_issuer: str = Field(default="", description="The issuer of tokens, exactly as their `iss` has it.")
    oidc_audience: str = Field(default="", description="The name of this cluster in the `aud` of tokens.")
    oidc_jwks_url: str = Field(default="", description="Where the provider publishes its keys: its jwks_uri.")
    oidc_principal_claim: str = Field(
        default="sub", min_length=1, description="The claim that is the name of the user."
    )
    oidc_groups_claim: str = Field(
        default="groups", min_length=1, description="The claim that lists the groups of the user."
    )
    oidc_algorithms: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("RS256", "ES256"), description="Algorithms by which tokens may be signed."
    )
    oidc_client_id: str = Field(
        default="", description="The client that the provider knows the console by; empty: no login there."
    )
    oidc_client_secret: SecretStr = Field(
        default=SecretStr(""), description="The secret of that client, if it has one."
    )
    oidc_scope: str = Field(
        default="openid", min_length=1, description="The scopes that the console asks for, openid among them."
    )
    oidc_authorization_url: str = Field(
        default="", description="Where the provider lets users log in: its authorization_endpoint."
    )
    oidc_token_url: str = Field(
        default="", description="Where the provider gives out tokens: its token_endpoint."
    )
    oidc_clock_skew_ms: int = Field(
        default=30_000, ge=0, description="How far the provider's clock may be off, in ms."
    )
    ssl_certfile: str = Field(
        default="", description="The gateway's certificate and its chain, in PEM: it speaks https then."
    )
    ssl_keyfile: str = Field(default="", description="The key of ssl_certfile, in PEM, if not in that file.")
    ssl_keyfile_password: SecretStr = Field(default=SecretStr(""), description="The password of that key.")
    ssl_ca_certs: str = Field(
        default="", description="The authorities that sign the certificates of clients, in PEM."
    )
    ssl_client_auth: Literal["none", "requested", "required"] = Field(
        default="none", description="Whether clients are asked for a certificate, and need one."
    )
    ssl_principal_mapping_rules: str = Field(
        default="DEFAULT",
        description="How the subject of a certificate becomes the name of a user, as in Kafka.",
    )
    peer_ca_certs: str = Field(
        default="", description="The authorities that sign those of other gateways; empty: the system's."
    )
    peer_server_name: str = Field(
        default="", description="The name in certificates of other gateways; empty: the host of a peer_url."
    )
    insecure: bool = Field(
        default=False,
        description="Serve other machines without authentication: everybody there may do everything.",
    )
    client: ClientSettings = Field(
        default=ClientSettings(),
        description="Credentials and certificates of commands with --url; a gateway does not use them.",
    )
    cors_allowed_origins: Annotated[tuple[Origin, ...], NoDecode] = Field(
        default=(),
        description="Origins whose pages may use the gateway, such as https://app.example; none: no page.",
    )
    leader_timeout_ms: int = Field(
        default=5_000,
        ge=100,
        description="How long, in ms, an unreachable gateway is silent before others lead in its place.",
    )
    linger_ms: float = Field(
        default=5, ge=0, le=60_000, description="How long, in ms, a batch waits for more records."
    )
    batch_size: ByteSize = _size(
        1 * MIB, "Bytes of records that seal a batch before linger_ms is over.", 1, BATCH_MAX_BYTES
    )
    buffer_memory: ByteSize = _size(
        128 * MIB,
        "Bytes that requests may hold until they are committed; beyond it produce answers 429.",
        64 * KIB,
    )
    commits_per_second_max: float = Field(
        default=50,
        ge=0,
        description="Sustained commits per second and partition; 0 means no bound.",
    )
    commits_burst: int = Field(
        default=100, ge=1, description="Commits a partition may make at once after being idle."
    )
    commits_cores_max: float = Field(
        default=0.4,
        ge=0,
        description="Cores that all commits together may take, 0.4 of one for example; beyond it batches "
        "gather for up to 250 ms. 0 means no bound.",
    )
    commits_requests_per_second_max: float = Field(
        default=50,
        ge=0,
        description="The same on an object store, in puts per second, two for a commit; 0 means no bound.",
    )
    max_request_bytes: ByteSize = _size(
        32 * MIB, "Largest request body, in bytes; a larger one answers 413.", 1 * KIB
    )
    max_connections: int = Field(
        default=4_096,
        ge=1,
        description="Connections at once, fewer where the file limit is low; more are answered 503.",
    )
    max_connections_per_ip: int = Field(
        default=0, ge=0, description="Connections at once from one address; 0 means no bound of its own."
    )
    principal_requests_max: int = Field(
        default=0,
        ge=0,
        description="Requests of one principal under way at once, waiting polls too; 0 means no bound.",
    )
    principal_groups_max: int = Field(
        default=0, ge=0, description="Consumer groups here that one principal has made; 0 means no bound."
    )
    principal_consumer_instances_max: int = Field(
        default=0, ge=0, description="Consumer instances here of one principal; 0 means no bound."
    )
    connections_max_idle_ms: int = Field(
        default=75_000,
        ge=2_000 * PEER_KEPT_S,
        description="How long, in ms, a connection may be idle between requests before it is closed.",
    )
    receive_timeout_ms: int = Field(
        default=60_000,
        ge=100,
        description="How long, in ms, a request's head may take to come, and then its body, before 408.",
    )
    send_timeout_ms: int = Field(
        default=60_000,
        ge=100,
        description="How long, in ms, a client may take nothing of its answer before it is cut off.",
    )
    fetch_max_bytes: ByteSize = _size(64 * MIB, "Upper bound of max_bytes in one fetch, in bytes.", 1 * KIB)
    fetch_json_max_bytes: ByteSize = _size(
        8 * MIB, "Bytes after which one JSON fetch answer ends: what a slow reader may hold.", 1 * KIB
    )
    fetch_timeout_ms_max: int = Field(
        default=300_000,
        ge=0,
        description="Upper bound, in ms, of how long a fetch may wait for records.",
    )
    num_partitions: int = Field(
        default=1,
        ge=1,
        le=PARTITIONS_MAX,
        description="Partitions of a topic that is created without naming a count.",
    )
    partitions_max: int = Field(
        default=100_000,
        ge=1,
        description="Partitions of all topics together; a request to make more answers 429.",
    )
    offsets_topic_num_partitions: int = Field(
        default=1,
        ge=1,
        le=PARTITIONS_MAX,
        description="Partitions of __consumer_offsets when it is made: what groups are spread over.",
    )
    consumer_instance_timeout_ms: int = Field(
        default=300_000,
        ge=1_000,
        description="How long, in ms, a consumer instance may be silent that has not set another time.",
    )
    group_min_session_timeout_ms: int = Field(
        default=100, ge=1, description="The least session.timeout.ms, in ms, that an instance may ask for."
    )
    group_max_session_timeout_ms: int = Field(
        default=1_800_000,
        ge=1,
        description="The most session.timeout.ms, in ms, that an instance may ask for.",
    )
    group_initial_rebalance_delay_ms: int = Field(
        default=500,
        ge=0,
        description="How long, in ms, a new group of Kafka's clients waits for more members.",
    )
    group_max_size: int = Field(
        default=1_000, ge=1, description="Consumer instances that one group may have; more answer 429."
    )
    consumer_instances_max: int = Field(
        default=5_000,
        ge=1,
        description="Consumer instances of all groups that a gateway coordinates; more answer 429.",
    )
    groups_max: int = Field(
        default=10_000, ge=1, description="Consumer groups that a gateway coordinates; more answer 429."
    )
    offsets_retention_minutes: int = Field(
        default=7 * 24 * 60,
        ge=1,
        description="How long, in minutes, a group without instances and commits is remembered.",
    )
    consumer_request_timeout_ms: int = Field(
        default=1_000,
        ge=0,
        description="How long, in ms, a poll waits for records that has not set another time.",
    )
    refresh_interval_ms: int = Field(
        default=1_000,
        ge=10,
        description="How often, in ms, it looks for topics, ACLs and credentials that others changed.",
    )
    topic_table_interval_ms: int = Field(
        default=1_000,
        ge=100,
        description="How often, in ms, the table over a topic is brought to where its partitions are.",
    )
    maintain_interval_ms: int = Field(
        default=300_000,
        ge=1_000,
        description="How often, in ms, `lakelog serve --maintain` begins a run of the maintenance jobs.",
    )
    maintain_engine: Literal["auto", "local", "spark"] = Field(
        default="auto",
        description="Where maintenance rewrites: processes of its machine (local), Spark, or by size (auto).",
    )
    maintain_local_max_bytes: ByteSize = _size(
        4 * 1024 * MIB,
        "Bytes that one job of a maintenance run rewrites by local processes when the engine is auto.",
        0,
    )
    shutdown_timeout_ms: int = Field(
        default=30_000,
        ge=0,
        description="How long, in ms, a stopping gateway flushes and answers before it gives up.",
    )
    console_enable: bool = Field(
        default=True,
        description="Whether /console is served; without authentication it is, on a loopback address alone.",
    )
    sql_timeout_ms: int = Field(
        default=30_000, ge=100, description="How long, in ms, a query of the console may take."
    )
    sql_memory: ByteSize = _size(
        1024 * MIB, "Memory that the process of a query of the console may take, in bytes.", 256 * MIB
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log messages that are written."
    )
    log_format: LogFormat = Field(
        default="text",
        description="How the log is written: lines of text, or an object of JSON in each line.",
    )
    access_log_enable: bool = Field(
        default=False,
        description="Whether the log has a line for each request, over HTTP and of Kafka's clients.",
    )

    @field_validator("store_options", mode="before")
    @classmethod
    def _written_as_json(cls, value: object) -> object:
        """A flag is text: it holds the options as the environment does, as a JSON object."""
        try:
            found = json.loads(value) if isinstance(value, str) else value
        except json.JSONDecodeError:
            raise ValueError("write the options as a JSON object") from None
        if not isinstance(found, dict):
            return found
        return {name: json.dumps(each) if isinstance(each, bool) else each for name, each in found.items()}

    @field_validator(
        "allowed_hosts", "authentication_methods", "cors_allowed_origins", "oidc_algorithms", mode="before"
    )
    @classmethod
    def _written_with_commas(cls, value: object) -> object:
        """A list in a file; with commas in a flag and in the environment."""
        return [name.strip() for name in value.split(",")] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _settings_of_clients_do_something(self) -> "Settings":
        oidc = ("oidc_issuer", "oidc_audience", "oidc_jwks_url")
        needs = {
            **{
                name: (
                    "authentication_methods with oidc",
                    bool(getattr(self, name)) and "oidc" not in self.authentication_methods,
                )
                for name in oidc
            },
            "oidc_client_id": (
                "authentication_methods with oidc, oidc_authorization_url and oidc_token_url",
                bool(self.oidc_client_id)
                and not (
                    "oidc" in self.authentication_methods
                    and self.oidc_authorization_url
                    and self.oidc_token_url
                ),
            ),
            **{
                name: ("oidc_client_id", lacks and not self.oidc_client_id)
                for name, lacks in (
                    ("oidc_client_secret", bool(self.oidc_client_secret.get_secret_value())),
                    ("oidc_authorization_url", bool(self.oidc_authorization_url)),
                    ("oidc_token_url", bool(self.oidc_token_url)),
                    ("oidc_scope", self.oidc_scope != "openid"),
                )
            },
            "ssl_keyfile": ("ssl_certfile", not self.ssl_certfile and bool(self.ssl_keyfile)),
            "ssl_client_auth": (
                "ssl_certfile and ssl_ca_certs",
                self.ssl_client_auth != "none" and not (self.ssl_certfile and self.ssl_ca_certs),
            ),
            "ssl_ca_certs": ("ssl_client_auth", bool(self.ssl_ca_certs) and self.ssl_client_auth == "none"),
            "authentication_methods with mtls": (
                "ssl_client_auth",
                "mtls" in self.authentication_methods and self.ssl_client_auth == "none",
            ),
            "ssl_principal_mapping_rules": (
                "authentication_methods with mtls",
                self.ssl_principal_mapping_rules != "DEFAULT" and "mtls" not in self.authentication_methods,
            ),
        }
        for name, (other, lacks) in needs.items():
            if lacks:
                raise ValueError(f"{name} needs {other}; set both, or none")
        return self

    @model_validator(mode="after")
    def _peer_secret_has_one_place(self) -> "Settings":
        if self.peer_secret is not None and self.peer_secret_file:
            raise ValueError("peer_secret and peer_secret_file are both set; leave one out")
        return self

    @model_validator(mode="after")
    def _request_fits_the_buffer(self) -> "Settings":
        if self.max_request_bytes > self.buffer_memory:
            raise ValueError(
                f"max_request_bytes ({int(self.max_request_bytes)}) is more than"
                f" buffer_memory ({int(self.buffer_memory)}): it could never be accepted"
            )
        return self

    @model_validator(mode="after")
    def _the_default_session_is_allowed(self) -> "Settings":
        low, high = self.group_min_session_timeout_ms, self.group_max_session_timeout_ms
        if not low <= self.consumer_instance_timeout_ms <= high:
            raise ValueError(
                f"consumer_instance_timeout_ms ({self.consumer_instance_timeout_ms}) is not from"
                f" group_min_session_timeout_ms ({low}) to group_max_session_timeout_ms ({high}):"
                " instances that say nothing could not be created"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `Settings(...)` is what it is given, whatever the environment: `load_settings` merges.
        return (init_settings,)


def load_settings(config_file: str | None = None, /, **flags: object) -> Settings:
    """Settings from the file, the environment and `flags` (None = not given), the later winning.

    `config_file` None means `$LAKELOG_CONFIG`, else `lakelog.toml` where it exists. Raises
    InvalidConfig that names the key, the value and where it was set.
    """
    _check_no_secret(flags)
    layers = {
        "flag": {name: value for name, value in flags.items() if value is not None},
        "environment": _from_environment(),
        "file": _from_file(config_file or os.environ.get(CONFIG_VARIABLE)),
    }
    merged = {**layers["file"], **layers["environment"], **layers["flag"]}
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise InvalidConfig(_explain(error, layers)) from None


def _check_no_secret(flags: Mapping[str, object]) -> None:
    """Raise InvalidConfig for a secret in a flag. Those of a store have variables of their own."""
    for name in SECRET:
        if name != "store_options" and flags.get(name) is not None:
            raise InvalidConfig(
                f"{name} holds a secret, and every user of the machine sees flags; set it in the settings "
                f"file, or as LAKELOG_{name.upper()}"
            )


def _from_environment() -> dict[str, Any]:
    try:
        return EnvSettingsSource(Settings)()
    except SettingsError as error:
        raise InvalidConfig(f"environment: {error}; tables are written as JSON objects") from None


def _from_file(named: str | None) -> dict[str, Any]:
    path = Path(named or CONFIG_FILE)
    if named is None and not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unusable(f"settings file {path}", error, "name one that exists", InvalidConfig) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"settings file {path} is not TOML: {error}") from None


def _explain(error: ValidationError, layers: dict[str, dict[str, Any]]) -> str:
    """One sentence per bad setting."""
    return "; ".join(_explain_one(problem, layers) for problem in error.errors())


def _explain_one(problem: ErrorDetails, layers: dict[str, dict[str, Any]]) -> str:
    reason = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return f"settings: {reason}"
    name = str(problem["loc"][0])
    within = ".".join(map(str, problem["loc"][1:]))
    if within and name in SECRET:
        return f"setting {name}: {within}: {reason}; docs/operating.md of the sources lists what it may have"
    source = next((layer for layer, values in layers.items() if name in values), "file")
    if problem["type"] == "extra_forbidden":
        close = get_close_matches(name, Settings.model_fields, n=1)
        hint = (
            f"; did you mean {close[0]}?"
            if close
            else "; docs/operating.md of the sources lists the settings"
        )
        return f"unknown setting {name} ({source}){hint}"  # its value may be a secret
    shown = "…" if name in SECRET else repr(problem["input"])
    return f"setting {name} = {shown} ({source}): {reason}"
