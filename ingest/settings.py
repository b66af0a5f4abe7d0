"""The settings of a gateway: a TOML file, then `LAKELOG_…` variables, then flags; the later wins.

The names are Kafka's where Kafka has one (`linger.ms` is `linger_ms`); docs/operating.md lists all.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
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

from ingest.registry_settings import RegistrySettings, checked_registries
from log_tables.cluster.credential import AuthenticationMethod
from log_tables.errors import InvalidConfig
from log_tables.limits import BATCH_MAX_BYTES, KIB, MIB, PARTITIONS_MAX, PEER_KEPT_S, STAGED_MAX_AGE_MS
from log_tables.spelling import meant
from log_tables.store.file import unusable
from log_tables.store.store import Durability
from log_tables.units import plain

CONFIG_FILE = "lakelog.toml"
"""Read from the working directory when no other file is named."""

STORE_OPTIONS = ("store_options", "standby_store_options")
"""Options of stores, which may hold secrets, and be flags."""

SECRET = ("client", "peer_secret", "schema_registries", "ssl_keyfile_password", *STORE_OPTIONS)
"""Settings that hold secrets: no message shows them."""

CONFIG_VARIABLE = "LAKELOG_CONFIG"
"""Names another file, as `--config` does."""


_CLUSTER_ID = r"^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?$"

LogFormat = Literal["text", "json"]


HostName = Annotated[str, Field(pattern=r"^(\*|[\w.-]+|[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*)$")]
"""A name or an address as it stands in a URL, without a port or brackets; * is any."""


Origin = Annotated[str, Field(pattern=r"^https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]+)?$")]
"""The origin of a page (RFC 6454): a scheme, a host, and a port where it is not the usual one."""


Listener = Annotated[str, Field(pattern=r"^((\[[0-9a-fA-F:.]+\]|[\w.-]+):[0-9]{1,5})?$")]
"""HOST:PORT, or empty."""


Rack = Annotated[str, Field(pattern=r"^[\w.:/@-]{0,64}$")]
"""Where a gateway stands, as clients name it in `client.rack`: a zone, mostly; or empty."""


Url = Annotated[str, Field(pattern=r"^(https?://[^\s]+)?$")]
"""A URL of HTTP, or empty."""


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
    """A row for each setting: its type, its default and its bounds; docs/operating.md says what each is for.

    Plain values; `load_settings` is how they are read. Sizes and times also take units: `"64 MiB"`, `"7d"`.
    """

    model_config = SettingsConfigDict(env_prefix="LAKELOG_", extra="forbid", frozen=True)

    data: str = Field(default="./lakelog-data", min_length=1)
    store_options: dict[str, str] = Field(default={}, repr=False)
    must_exist: bool = False
    cluster_id: str = Field(default="", pattern=_CLUSTER_ID)
    standby_store_options: dict[str, str] = Field(default={}, repr=False)
    replicate_max_bytes_per_second: ByteSize = ByteSize(0)
    replicate_max_requests_per_second: float = Field(default=0, ge=0)
    durability: Durability = "auto"
    disk_reserve_bytes: ByteSize = Field(default=ByteSize(16 * MIB), ge=0)
    disk_free_min_bytes: ByteSize = Field(default=ByteSize(64 * MIB), ge=0)
    remote_root: str = ""
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8082, ge=0, le=65_535)
    kafka_listener: Listener = ""
    kafka_advertised_listener: Listener = ""
    broker_rack: Rack = ""
    kafka_compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    kafka_connections_max_idle_ms: int = Field(default=600_000, ge=100)
    producer_ids_max: int = Field(default=10_000, ge=1)
    transaction_max_timeout_ms: int = Field(default=900_000, ge=1, le=STAGED_MAX_AGE_MS // 2)
    transactions_max_bytes: ByteSize = Field(default=ByteSize(16 * 1024 * MIB), ge=MIB)
    principal_transactions_max_bytes: ByteSize = Field(default=ByteSize(0), ge=0)
    transactional_id_expiration_ms: int = Field(default=7 * 24 * 60 * 60 * 1000, ge=1)
    auto_create_topics_enable: bool = True
    advertised_url: Url = ""
    peer_url: Url = ""
    peer_secret: SecretStr | None = None
    peer_secret_file: str = ""
    allowed_hosts: Annotated[tuple[HostName, ...], NoDecode] = ()
    authentication_methods: Annotated[tuple[AuthenticationMethod, ...], NoDecode] = ()
    user_administration_enable: bool = True
    audit_enable: bool = True
    audit_writes: Literal["none", "first", "ranges"] = "first"
    audit_writes_interval_ms: int = Field(default=10_000, ge=1_000)
    audit_records_per_s_max: int = Field(default=100, ge=1)
    audit_retention_ms: int = Field(default=90 * 24 * 60 * 60 * 1000, ge=-1)
    audit_retention_bytes: int = Field(default=256 * MIB, ge=-1)
    oidc_issuer: str = ""
    oidc_audience: str = ""
    oidc_jwks_url: str = ""
    oidc_principal_claim: str = Field(default="sub", min_length=1)
    oidc_groups_claim: str = Field(default="groups", min_length=1)
    oidc_algorithms: Annotated[tuple[str, ...], NoDecode] = ("RS256", "ES256")
    oidc_client_id: str = ""
    oidc_client_secret: SecretStr = SecretStr("")
    oidc_scope: str = Field(default="openid", min_length=1)
    oidc_authorization_url: str = ""
    oidc_token_url: str = ""
    oidc_clock_skew_ms: int = Field(default=30_000, ge=0)
    ssl_certfile: str = ""
    ssl_keyfile: str = ""
    ssl_keyfile_password: SecretStr = SecretStr("")
    ssl_ca_certs: str = ""
    ssl_client_auth: Literal["none", "requested", "required"] = "none"
    ssl_principal_mapping_rules: str = "DEFAULT"
    peer_ca_certs: str = ""
    peer_server_name: str = ""
    insecure: bool = False
    client: ClientSettings = ClientSettings()
    cors_allowed_origins: Annotated[tuple[Origin, ...], NoDecode] = ()
    leader_timeout_ms: int = Field(default=5_000, ge=100)
    linger_ms: float = Field(default=5, ge=0, le=60_000)
    batch_size: ByteSize = Field(default=ByteSize(1 * MIB), ge=1, le=BATCH_MAX_BYTES)
    buffer_memory: ByteSize = Field(default=ByteSize(128 * MIB), ge=64 * KIB)
    commits_per_second_max: float = Field(default=50, ge=0)
    commits_burst: int = Field(default=100, ge=1)
    commits_cores_max: float = Field(default=0.4, ge=0)
    commits_requests_per_second_max: float = Field(default=50, ge=0)
    unmerged_segments_urgent: int = Field(default=500, ge=0)
    unmerged_segments_gather: int = Field(default=4_000, ge=0)
    unmerged_segments_max: int = Field(default=100_000, ge=0)
    max_request_bytes: ByteSize = Field(default=ByteSize(32 * MIB), ge=1 * KIB)
    max_connections: int = Field(default=4_096, ge=1)
    max_connections_per_ip: int = Field(default=0, ge=0)
    principal_requests_max: int = Field(default=0, ge=0)
    principal_groups_max: int = Field(default=0, ge=0)
    principal_consumer_instances_max: int = Field(default=0, ge=0)
    connections_max_idle_ms: int = Field(default=75_000, ge=2_000 * PEER_KEPT_S)
    receive_timeout_ms: int = Field(default=60_000, ge=100)
    send_timeout_ms: int = Field(default=60_000, ge=100)
    fetch_max_bytes: ByteSize = Field(default=ByteSize(64 * MIB), ge=1 * KIB)
    fetch_json_max_bytes: ByteSize = Field(default=ByteSize(8 * MIB), ge=1 * KIB)
    fetch_timeout_ms_max: int = Field(default=300_000, ge=0)
    num_partitions: int = Field(default=1, ge=1, le=PARTITIONS_MAX)
    partitions_max: int = Field(default=100_000, ge=1)
    offsets_topic_num_partitions: int = Field(default=1, ge=1, le=PARTITIONS_MAX)
    consumer_instance_timeout_ms: int = Field(default=300_000, ge=1_000)
    group_min_session_timeout_ms: int = Field(default=100, ge=1)
    group_max_session_timeout_ms: int = Field(default=1_800_000, ge=1)
    group_initial_rebalance_delay_ms: int = Field(default=500, ge=0)
    group_max_size: int = Field(default=1_000, ge=1)
    group_consumer_session_timeout_ms: int = Field(default=45_000, ge=1)
    group_consumer_heartbeat_interval_ms: int = Field(default=1_000, ge=1)
    group_consumer_assignment_interval_ms: int = Field(default=100, ge=0, le=15_000)
    consumer_instances_max: int = Field(default=5_000, ge=1)
    groups_max: int = Field(default=10_000, ge=1)
    offsets_retention_minutes: int = Field(default=7 * 24 * 60, ge=1)
    group_undo_ms: int = Field(default=24 * 60 * 60 * 1_000, ge=0)
    consumer_request_timeout_ms: int = Field(default=1_000, ge=0)
    refresh_interval_ms: int = Field(default=1_000, ge=10)
    topic_table_interval_ms: int = Field(default=1_000, ge=100)
    maintain_interval_ms: int = Field(default=300_000, ge=1_000)
    maintain_engine: Literal["auto", "local", "spark"] = "auto"
    maintain_local_max_bytes: ByteSize = Field(default=ByteSize(4 * 1024 * MIB), ge=0)
    shutdown_timeout_ms: int = Field(default=30_000, ge=0)
    schema_registries: dict[str, RegistrySettings] = {}
    console_enable: bool = True
    docs_url: Url = ""
    sql_timeout_ms: int = Field(default=30_000, ge=100)
    sql_memory: ByteSize = Field(default=ByteSize(1024 * MIB), ge=256 * MIB)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: LogFormat = "text"
    access_log_enable: bool = False

    @field_validator(*STORE_OPTIONS, mode="before")
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

    @field_validator("*", mode="before")
    @classmethod
    def _written_with_a_unit(cls, value: object, info: ValidationInfo) -> object:
        return plain(info.field_name or "", value) if isinstance(value, str) else value

    @field_validator(
        "allowed_hosts", "authentication_methods", "cors_allowed_origins", "oidc_algorithms", mode="before"
    )
    @classmethod
    def _written_with_commas(cls, value: object) -> object:
        """A list in a file; with commas in a flag and in the environment."""
        return [name.strip() for name in value.split(",")] if isinstance(value, str) else value

    @field_validator("schema_registries")
    @classmethod
    def _named_by_urls(cls, value: dict[str, RegistrySettings]) -> dict[str, RegistrySettings]:
        return checked_registries(value)

    @model_validator(mode="after")
    def _settings_of_clients_do_something(self) -> "Settings":
        oidc, mtls = "oidc" in self.authentication_methods, "mtls" in self.authentication_methods
        login = oidc and self.oidc_authorization_url and self.oidc_token_url
        asks, checks = self.ssl_client_auth != "none", self.ssl_certfile and self.ssl_ca_certs
        by_oidc, by_mtls = "authentication_methods with oidc", "authentication_methods with mtls"
        for_login = f"{by_oidc}, oidc_authorization_url and oidc_token_url"
        secret, has_scope = self.oidc_client_secret.get_secret_value(), self.oidc_scope != "openid"
        has_rules = self.ssl_principal_mapping_rules != "DEFAULT"
        for name, is_set, other, is_other_set in (
            ("oidc_issuer", self.oidc_issuer, by_oidc, oidc),
            ("oidc_audience", self.oidc_audience, by_oidc, oidc),
            ("oidc_jwks_url", self.oidc_jwks_url, by_oidc, oidc),
            ("oidc_client_id", self.oidc_client_id, for_login, login),
            ("oidc_client_secret", secret, "oidc_client_id", self.oidc_client_id),
            ("oidc_authorization_url", self.oidc_authorization_url, "oidc_client_id", self.oidc_client_id),
            ("oidc_token_url", self.oidc_token_url, "oidc_client_id", self.oidc_client_id),
            ("oidc_scope", has_scope, "oidc_client_id", self.oidc_client_id),
            ("ssl_keyfile", self.ssl_keyfile, "ssl_certfile", self.ssl_certfile),
            ("ssl_client_auth", asks, "ssl_certfile and ssl_ca_certs", checks),
            ("ssl_ca_certs", self.ssl_ca_certs, "ssl_client_auth", asks),
            (by_mtls, mtls, "ssl_client_auth", asks),
            ("ssl_principal_mapping_rules", has_rules, by_mtls, mtls),
        ):
            if is_set and not is_other_set:
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
        if name not in STORE_OPTIONS and flags.get(name) is not None:
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
        hint = meant(name, Settings.model_fields) or "docs/operating.md of the sources lists the settings"
        return f"unknown setting {name} ({source}); {hint}"  # its value may be a secret
    shown = "…" if name in SECRET else repr(problem["input"])
    return f"setting {name} = {shown} ({source}): {reason}"
