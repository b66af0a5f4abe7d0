"""Whether the source is still the one that is copied: its cluster, and its topics, by their ids."""

from jobs.mirror.source import Source, UnknownAtSource
from log_tables.cluster.metadata_log import MirrorRecord, TopicRecord
from log_tables.errors import AuthorizationFailed, Retriable


class AnotherCluster(Retriable):
    """At the address of the source is another cluster than the one that is copied."""


def check_same_cluster(mirror: MirrorRecord, source: Source) -> str:
    """Returns the id of the cluster that answers. Raises AnotherCluster."""
    found = source.cluster_id()
    if mirror.cluster_id and found and found != mirror.cluster_id:
        raise AnotherCluster(
            f"at {mirror.source} is the cluster {found}, and the mirror {mirror.name} copies "
            f"{mirror.cluster_id}; repeat this when that answers there"
        )
    return found


def check_same_topic(copy: TopicRecord, found: str | UnknownAtSource | AuthorizationFailed) -> str:
    """Raise UnknownAtSource unless `found`, the id of the topic at the source now, is that of the topic which
    is copied; an error that was found is raised. Returns the id, "" where brokers have none.
    """
    if isinstance(found, str):
        known = copy.mirrored.topic_id if copy.mirrored else ""
        if known and found != known:
            raise UnknownAtSource(
                f"the source has deleted and re-created the topic {copy.name} (id {known}, now "
                f"{found or 'none'}); what is here is of the one that is gone"
            )
        return found
    raise found
