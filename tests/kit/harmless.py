"""Small changes of a root that mislead no reader, no fold and no gateway, or that nothing else in the root
contradicts. Under each reason: logs, their actions, fields and hows, in all combinations.
"""

from collections.abc import Iterator, Mapping
from itertools import product

from tests.kit.mutations import Name

_TABLES = """
a bound of a declared column that is missing, or wider, leaves nothing out
    partition | WRITE add | stats.json.maxValues.value_error, stats.json.minValues.value_error | missing
    partition | WRITE add | stats.json.nullCount.m, stats.json.nullCount.n | missing
    partition | WRITE add | stats.json.nullCount.value_error | missing
    partition | WRITE add | stats.json.minValues.value_error | forged, out of range
a fold that died before its last commit looks the same, and the next one goes on
    fold, remote fold | WRITE txn lakelog.fold.N.version | | missing
a time between those of its neighbours
    partition | WRITE add | modificationTime | forged
a time: it says when an idle producer is forgotten
    partition | WRITE txn lakelog.producer.N.end, WRITE txn lakelog.producer.N.seq | lastUpdated | forged
a time: when a file that was removed is forgotten
    compacted | COMPACT remove | deletionTimestamp | forged
    fold | DELETE remove | deletionTimestamp | forged
    partition | DELETE RECORDS remove, TIER remove, UPDATE remove | deletionTimestamp | forged
another unique text
    compacted | CLAIM commitInfo, COMPACT commitInfo, CREATE TABLE commitInfo | batchId | forged
    compacted | WRITE commitInfo | batchId | forged
    fold | ADD COLUMNS commitInfo, CREATE TABLE commitInfo, DELETE commitInfo | batchId | forged
    fold | OPTIMIZE commitInfo, WRITE commitInfo | batchId | forged
    partition | ADD COLUMNS commitInfo, CLAIM commitInfo, CREATE TABLE commitInfo | batchId | forged
    partition | DELETE RECORDS commitInfo, OPTIMIZE commitInfo, TIER commitInfo | batchId | forged
    partition | UPDATE commitInfo, WRITE commitInfo | batchId | forged
    remote fold | ADD COLUMNS commitInfo, CREATE TABLE commitInfo, WRITE commitInfo | batchId | forged
    remote partition | ADD COLUMNS commitInfo, CREATE TABLE commitInfo, TIER commitInfo | batchId | forged
another version of lakelog
    compacted | CLAIM commitInfo, COMPACT commitInfo, CREATE TABLE commitInfo | engineInfo | forged
    compacted | WRITE commitInfo | engineInfo | forged
    fold | ADD COLUMNS commitInfo, CREATE TABLE commitInfo, DELETE commitInfo | engineInfo | forged
    fold | OPTIMIZE commitInfo, WRITE commitInfo | engineInfo | forged
    partition | ADD COLUMNS commitInfo, CLAIM commitInfo, CREATE TABLE commitInfo | engineInfo | forged
    partition | DELETE RECORDS commitInfo, OPTIMIZE commitInfo, TIER commitInfo | engineInfo | forged
    partition | UPDATE commitInfo, WRITE commitInfo | engineInfo | forged
    remote fold | ADD COLUMNS commitInfo, CREATE TABLE commitInfo, WRITE commitInfo | engineInfo | forged
    remote partition | ADD COLUMNS commitInfo, CREATE TABLE commitInfo | engineInfo | forged
    remote partition | TIER commitInfo | engineInfo | forged
for other writers, which must not write here
    compacted | COMPACT remove | extendedFileMetadata | forged, missing
    compacted, partition | WRITE commitInfo | isBlindAppend | forged, missing
    fold | DELETE remove, OPTIMIZE remove, checkpoint remove | extendedFileMetadata | forged, missing
    fold, partition | checkpoint remove | dataChange | forged, missing
    partition | DELETE RECORDS remove, OPTIMIZE remove, TIER remove | extendedFileMetadata | forged, missing
    partition | UPDATE remove, checkpoint remove | extendedFileMetadata | forged, missing
for people
    compacted | CREATE TABLE metaData | createdTime | forged, missing
    compacted, partition | WRITE commitInfo | operationParameters.mode | forged, missing, out of range
for people: the id of the gateway counts
    compacted, partition | CLAIM commitInfo | leaderUrl | missing
it may be missing
    compacted | COMPACT add | tags.lakelog.bytes, tags.lakelog.digest | missing
    partition | WRITE add | tags.lakelog.bytes, tags.lakelog.digest | missing
no reader of a checkpoint asks for it
    fold, partition | checkpoint add | dataChange | forged, missing
nothing else names the id of the table
    compacted | CREATE TABLE metaData | id | forged
the file was removed before a checkpoint or a fold named it
    compacted | WRITE add | stats.json.nullCount.headers, stats.json.nullCount.key | forged, out of range
    compacted | WRITE add | stats.json.nullCount.value | forged, out of range
    compacted | WRITE add | tags.lakelog.bytes, tags.lakelog.digest | forged, missing
the writer's clock, which people alone read
    compacted | CLAIM commitInfo, COMPACT commitInfo, CREATE TABLE commitInfo | timestamp | forged
    compacted | WRITE commitInfo | timestamp | forged
    fold | ADD COLUMNS commitInfo, CREATE TABLE commitInfo, DELETE commitInfo | timestamp | forged
    fold | OPTIMIZE commitInfo, WRITE commitInfo | timestamp | forged
    partition | ADD COLUMNS commitInfo, CLAIM commitInfo, CREATE TABLE commitInfo | timestamp | forged
    partition | DELETE RECORDS commitInfo, OPTIMIZE commitInfo, TIER commitInfo | timestamp | forged
    partition | UPDATE commitInfo, WRITE commitInfo | timestamp | forged
    remote fold | ADD COLUMNS commitInfo, CREATE TABLE commitInfo, WRITE commitInfo | timestamp | forged
    remote partition | ADD COLUMNS commitInfo, CREATE TABLE commitInfo, TIER commitInfo | timestamp | forged
the next claim notes it, for the records since then
    compacted | CLAIM txn lakelog.epoch.NNNN | | missing
whom to ask first; the leader is who wins the next put
    compacted | CLAIM txn lakelog.broker | | missing
    compacted | CLAIM txn lakelog.broker | version | forged
"""

_RECORDS = """
a group may forget it: the record of another moment, or a removal
    groups | ClassicValue, GroupValue, MemberValue, OffsetValue, Retry | , value | missing
    groups | UndoValue | , value | missing
    groups | TransactionsValue | , value | missing
a group that does not know a topic leaves it out
    groups | MemberValue | topic_ids.t | missing
a number that it may have
    groups | ClassicValue, GroupValue | generation | forged
    groups | MemberValue | epoch, owned.t | forged
    groups | OffsetValue | leader_epoch, offset | forged
    groups | UndoValue | acts.offsets, acts.offsets.offset | forged
    groups | TransactionsValue | producer_id | forged
a record has all that holds: a later one says it again
    metadata | topic altered | | missing
    metadata | copy, copy stopped, mirror, mirror paused | | missing
    metadata | topic back | | missing
a setting like any other; its tables show some, which a check of the root compares
    metadata | topic, topic deleted | configs.retention.ms | forged, missing
    metadata | topic, topic deleted | configs.value.columns | missing, out of range
a text that clients choose
    groups | ClassicValue | protocol, protocol_type | forged, out of range
    groups | MemberValue | topics | forged, out of range
    groups | OffsetValue | member, metadata | forged, out of range
    groups | Retry | digest | forged, out of range
    groups | UndoValue | acts.principal | forged, missing, out of range
a text that people read
    groups | UndoValue | acts.done | forged, out of range
    metadata | copy stopped | mirrored.stopped | forged, missing, out of range
a time that it may have
    groups | ClassicValue | members.a.rebalance_timeout_ms, members.a.session_timeout_ms | forged
    groups | GroupValue | idle_ms | forged
    groups | OffsetValue, Retry | committed_ms | forged
    groups | UndoValue | acts.at_ms | forged
a time: when files of a deleted topic may go
    metadata | topic deleted, topic kept | deleted.N | forged
a topic may grow, and the tables are gone
    metadata | copy promoted | partitions | forged
    metadata | topic deleted | partitions | forged
an append that failed may be there twice
    audit | access, change, denial, loss, refusal, write | | doubled
another unique text: nothing in a root has it again
    metadata | gateway, gateway that leads | incarnation | forged
another version
    audit | access, change, denial, loss, refusal, write | metadata.product.version | forged, out of range
    audit | access, change, denial, loss, refusal, write | metadata.version | forged, out of range
it is its default
    audit | access, change, refusal | count | missing
    audit | access, change, denial, loss, refusal, write | metadata.log_name, metadata.product.name | missing
    audit | access, change, denial, loss, refusal, write | metadata.product.vendor_name | missing
    audit | access, change, denial, loss, refusal, write | metadata.product.version | missing
    audit | access, change, denial, loss, refusal, write | metadata.version | missing
    groups | ClassicValue | generation, protocol, protocol_type | missing
    groups | GroupValue | idle_ms | missing
    groups | MemberValue | epoch | missing
    groups | OffsetValue | committed_ms, leader_epoch, member, metadata | missing
    metadata | copy, copy promoted, copy stopped, topic back, topic kept, topic to keep | columns | missing
    metadata | copy, copy promoted, copy stopped, topic, topic altered | live, revived | missing
    metadata | topic deleted, topic kept | revived | missing
    metadata | topic back | live | missing
    metadata | topic to keep | live, revived | missing
    metadata | copy | mirrored.stopped | missing
    metadata | gateway, gateway that leads | leaving, rack | missing
    metadata | mirror | paused | missing
nothing else in a root says for whom or for what a rule or a credential is
    credentials | key | created_ms, expires_ms, principal | forged
    credentials | key | expires_ms | missing
    credentials | user | mechanisms.SCRAM-SHA-NN.iterations | forged
    metadata | quota | producer_byte_rate, request_rate | missing
    metadata | quota removed | value | forged
    metadata | security | secured | forged
    metadata | super user | key | forged
nothing else in a root says that it happened
    audit | access, change, denial, loss, refusal, write | | missing
nothing else in a root says that the record was there
    credentials | user removed | | missing
    metadata | acl removed, gateway, mirror deleted, quota removed, security, topic | | missing
nothing else in a root says who did what, and when
    audit | access | actor.user.groups.name, actor.user.name, dst_endpoint.name, metadata.uid | forged
    audit | access | resources.type, src_endpoint.ip | forged
    audit | access | actor.user.groups.name | out of range
    audit | change | actor.user.groups.name, actor.user.name, api.operation | forged
    audit | change | api.request.data.partitions, dst_endpoint.name, resources.name, resources.type | forged
    audit | change | src_endpoint.ip | forged
    audit | change | actor.user.groups.name, api.request.data.partitions, resources.name | out of range
    audit | denial | actor.user.groups.name, actor.user.name, count, dst_endpoint.name, end_time | forged
    audit | denial | metadata.uid, resources.name, resources.type, src_endpoint.ip, status_code | forged
    audit | denial | actor.user.groups.name, resources.name | out of range
    audit | denial | status_code | missing
    audit | loss | count, end_time, metadata.uid | forged
    audit | refusal | dst_endpoint.name, metadata.uid, resources.name, resources.type | forged
    audit | refusal | src_endpoint.name, user.type_id | forged
    audit | refusal | resources.name, src_endpoint.name | out of range
    audit | write | actor.user.groups.name, actor.user.name, dst_endpoint.name, end_time | forged
    audit | write | metadata.uid, resources.type, src_endpoint.ip, unmapped.topic_id | forged
    audit | write | actor.user.groups.name | out of range
people alone read when a key was last used
    credentials | later use, use, use revoked | | missing
    credentials | later use, use | value | forged
    credentials | use revoked | key | forged
    groups | ClassicValue, GroupValue, MemberValue, OffsetValue, Retry, UndoValue | | doubled
    metadata | mirror | paused | forged
    metadata | mirror paused | paused | forged, missing
the newest record of a key counts
    credentials | later use, use, use revoked, user | | doubled
    groups | ClassicValue, GroupValue, MemberValue, OffsetValue, Retry | | doubled
    metadata | acl, copy, copy promoted, copy stopped, gateway, gateway that leads | | doubled
    metadata | mirror, mirror paused, quota, security, super user, topic | | doubled
    metadata | topic altered, topic back, topic deleted, topic kept, topic to keep | | doubled
the tables of the topic say it: a check of the root names it
    metadata | topic deleted | | missing
the source of a copy may have no id
    metadata | copy | mirrored.topic_id | missing, out of range
whom to ask first; the leader is who wins the next put
    metadata | gateway that leads, gateway that left | | missing
    metadata | gateway that leads | leads.t, leaving | forged
"""


def _names(text: str) -> Iterator[tuple[Name, str]]:
    why = ""
    for line in text.splitlines():
        if line.startswith(" "):
            lists = [[part.strip() for part in cell.split(",")] for cell in line.split("|")]
            yield from ((Name(*parts), why) for parts in product(*lists))
        else:
            why = line


TABLES: Mapping[Name, str] = dict(_names(_TABLES))
"""Of commits and checkpoints."""

RECORDS: Mapping[Name, str] = dict(_names(_RECORDS))
"""Of records of the metadata log, of credentials, of the audit log and of groups."""
