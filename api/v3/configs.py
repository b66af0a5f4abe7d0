"""Version 3: the settings of a topic (Confluent REST API v3)."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field, model_validator

from api.client_topics import TopicDescription, describe_topic
from api.errors import error_responses
from api.requests.access import Asked
from api.requests.envelope import Collection, ListMetadata, ResourceMetadata, resource, url
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from api.requests.strict_body import Listed, StrictBody
from api.v3.paths import ClusterId, TopicName
from log_tables.cluster.acl import ResourceType
from log_tables.cluster.admin.topic_admin import alter_topic
from log_tables.cluster.config import SETTINGS
from log_tables.errors import NotFound

router = APIRouter(
    prefix="/v3/clusters/{cluster_id}/topics/{topic}", tags=["v3 topics"], route_class=StrictRoute
)

Source = Literal["DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG"]


class ConfigView(BaseModel):
    kind: str = "KafkaTopicConfig"
    metadata: ResourceMetadata
    cluster_id: str
    topic_name: str
    name: str
    value: str
    is_default: bool
    is_read_only: bool = False
    is_sensitive: bool = False
    source: Source


class Alteration(StrictBody):
    name: str = Field(examples=["compression.type"])
    operation: Literal["SET", "DELETE"] = Field(
        "SET", description="SET changes the value; DELETE resets it to its default."
    )
    value: str | None = Field(None, description="The new value; only with SET.", examples=["lz4"])

    def counted_by(self) -> object:
        return None  # all are settings of one topic

    @model_validator(mode="after")
    def _set_has_a_value(self) -> "Alteration":
        if (self.operation == "SET") != (self.value is not None):
            raise ValueError("SET needs a value, and DELETE takes none")
        return self


class Alterations(StrictBody):
    data: Listed[Alteration] = Field(min_length=1)


@router.get("/configs", summary="List a topic's settings", responses=error_responses(404))
def list_configs(
    here: Here, request: Request, cluster: ClusterId, topic: TopicName
) -> Collection[ConfigView]:
    found = describe_topic(here, topic)
    return Collection(
        kind="KafkaTopicConfigList",
        metadata=ListMetadata(self=url(request, cluster, "topics", topic, "configs")),
        data=[_config_view(request, cluster, found, name) for name in SETTINGS],
    )


@router.get("/configs/{name}", summary="Get a setting", responses=error_responses(404))
def get_config(
    here: Here,
    request: Request,
    cluster: ClusterId,
    topic: TopicName,
    name: Annotated[str, Path(examples=["compression.type"])],
) -> ConfigView:
    found = describe_topic(here, topic)
    if name not in SETTINGS:
        raise NotFound(
            f"there is no setting {name[:100]!r}; the settings of a topic are {', '.join(SETTINGS)}"
        )
    return _config_view(request, cluster, found, name)


@router.post(
    "/configs:alter",
    status_code=204,
    summary="Alter settings, all or none",
    responses=error_responses(400, 404, 422, 503),
)
def alter_configs(
    here: Here, asked: Asked, cluster: ClusterId, topic: TopicName, alterations: Alterations
) -> None:
    configs = {change.name: change.value for change in alterations.data}
    with asked.changing("AlterConfigs", ResourceType.TOPIC, topic, configs=configs):
        alter_topic(here.cluster, topic, configs)


def _config_view(request: Request, cluster: str, topic: TopicDescription, name: str) -> ConfigView:
    overridden = name in topic.config.overrides
    resource_name = f"kafka={cluster}/topic={topic.name}/config={name}"
    path = (cluster, "topics", topic.name, "configs", name)
    return ConfigView(
        metadata=resource(request, *path, name=resource_name),
        cluster_id=cluster,
        topic_name=topic.name,
        name=name,
        value=topic.config[name],
        is_default=not overridden,
        source="DYNAMIC_TOPIC_CONFIG" if overridden else "DEFAULT_CONFIG",
    )
