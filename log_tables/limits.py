"""Every bound, named, with its unit and its reason."""

KIB = 1024
MIB = 1024 * KIB

TOPIC_NAME_MAX_CHARS = 249
"""Kafka's: a directory name with a partition suffix must stay under 255 bytes."""

PARTITIONS_MAX = 10_000
"""A topic's partitions; each is a table, so more is a mistake rather than a wish."""

RECORD_MAX_BYTES = 1 * MIB + 12
"""Default of `max.message.bytes`: Kafka's 1 MiB plus its batch overhead."""

RECORD_HARD_MAX_BYTES = 256 * MIB
"""Upper end of `max.message.bytes`: 32-bit Arrow offsets must hold several such values."""

BATCH_MAX_BYTES = 64 * MIB
"""One commit's records: bounds what a crash can make a leader write again and a reader hold at once."""

REQUEST_RECORDS_MAX = 200_000
"""Records in one JSON request: each costs some 500 bytes while it is decoded, and 7 µs of the event loop."""

BODY_DEPTH_MAX = 500
"""Arrays and objects within one another in a JSON value: half of what the decoder can follow where it has all
of Python's stack, so that how deep its caller stands makes no difference.
"""

JSON_FIELD_BYTES = 140
JSON_HEADER_BYTES = 360
"""What a record, each field of it, and each of its headers take while JSON is decoded, at most: measured."""

JSON_ANSWER_BYTES = 1_000
"""What a record of v3 takes until it is answered, beside what it holds: its row, and what is said of it."""

HEAD_MAX_BYTES = 64 * KIB
"""A request's line and headers, or what a chunked body has between two of its pieces."""

HEADER_LINES_MAX = 256
"""Headers of a request: each is looked through for every one that a route wants."""

PEER_KEPT_S = 2
"""How long a gateway keeps a connection to another one that it does not use. `connections_max_idle_ms` is
twice that or more: a request that meets a close may have been done or not."""

SMALL_CHUNKS_MAX = 10_000
CHUNK_MEAN_MIN_BYTES = 16
"""Chunks of a body that may be small, and what all of them have on average beyond that: each costs as much of
the event loop as kilobytes do."""

PIPELINED_MAX = 64
"""Requests that a client has sent before the answer to an earlier one: each takes some kilobytes."""

SPARE_CONNECTIONS = 16
"""Connections beyond `max_connections` that may still ask how the gateway is."""

SPARE_PEER_CONNECTIONS = 64
"""Connections beyond those for requests of other gateways: each is for one request."""

LINGER_S = 2.0
"""How long a client that was refused in the middle of its request may go on sending: so it hears why."""

UNSENT_MAX_BYTES = 256 * MIB
"""Answers that clients have not taken yet, over all connections."""

SMALL_BODY_MAX_BYTES = 1 * MIB
"""A body that holds no records: a topic with every setting is a few hundred bytes."""

SMALL_BODY_VALUES_MAX = 125_000
SMALL_VALUE_BYTES = 128
"""Values in such a body, as a commit of 30,000 partitions has; and what each takes once it is decoded."""

SMALL_BODIES_MAX_BYTES = 32 * MIB
"""Such bodies together with their values, beside `buffer_memory`: neither they nor records keep the others
out."""

SMALL_BODY_FREE_BYTES = 16 * KIB
"""Of each such body, what takes no room: so nobody keeps out a commit. All connections together bound it."""

STREAM_RECORDS_MAX = 1_000_000
"""Records in one Arrow stream, and headers of theirs: a null takes no byte of the stream, and 31 of memory
while it becomes a record; a key takes 1.2 µs of the event loop."""

STREAM_BATCHES_MAX = 10_000
"""Record batches in one Arrow stream of a client: one of a hundred bytes costs Arrow some kilobytes."""

STREAM_FIELDS_MAX = 32
"""Columns of an Arrow stream, with those inside of them: records have six, and 2 inside of headers."""

RECORD_COLUMNS_BYTES = 24
"""What a record takes in memory beside key, value and headers: a time, and where each of them is."""

APPENDS_AT_ONCE = 64
"""Partitions that all requests to more partitions than this are at work at together: a commit takes some 2 ms
of the machine, so that nobody waits for much more than 0.1 s of them."""

ROW_GROUP_MAX_ROWS = 65_536
"""Rows in a row group: a seek reads at most one group too much."""

ROW_GROUP_TARGET_BYTES = 4 * MIB
"""Uncompressed bytes in a row group, for the same reason when records are large."""

CHECKPOINT_INTERVAL_COMMITS = 100
"""Commits between checkpoints: opening reads one checkpoint and at most about this many commits."""

LOG_RETENTION_MS = 60 * 60 * 1000
"""Commit files younger than this are never cleaned: a leader relies on seeing what fenced it."""

CONFIRMATION_MAX_AGE_S = 30 * 60
"""A leader whose last confirmed commit is older re-opens the table: half of LOG_RETENTION_MS, so that a
fence cannot have been cleaned between the look and the put, short of a clock that loses half an hour."""

TOMBSTONE_RETENTION_MS = LOG_RETENTION_MS
"""How long a removed file stays known. Every checkpoint holds them all, and at 20 commits a second a
partition removes 1.7 million a day. As long as commits stay: who looks within the hour whether its
own commit counted (`Table.transact`) finds its file in the table or among the removed."""

FILE_RETENTION_MS = 24 * 60 * 60 * 1000
"""How long a removed file stays on disk, for readers of an older version: vacuum goes by it."""

REWRITE_MAX_AGE_MS = 3 * 60 * 60 * 1000
"""A rewrite that put its first output longer ago is dropped, not committed: half of VACUUM_MARK_AGE_MS, so
that no file that a vacuum has marked becomes part of a table, short of a clock that loses three hours."""

VACUUM_MARK_AGE_MS = 2 * REWRITE_MAX_AGE_MS
"""An unreferenced file below the high watermark that is younger, by the store's clock, may belong to a
rewrite that is about to be committed; an older one is nobody's."""

LEDGER_NAMES_MAX = 100_000
"""Names in one ledger of a vacuum: 5 MB, read at once."""

STAGED_BATCH_BYTES = 8 * MIB
"""One record batch of a staged file: what is appended of it at once."""

STAGED_FILE_BYTES = 64 * MIB
"""Who stages more than this begins another file: a writer holds about so much, and who reads a run too."""

STAGED_RUN_MAX_BYTES = 2 * RECORD_HARD_MAX_BYTES
"""What the records of one partition in a staged file have at most, as they are and encoded. Who stages more
begins another file; of a file that says more the transaction is refused. One that is committed is read."""

STAGED_UNPACKED_MAX_BYTES = 2 * STAGED_RUN_MAX_BYTES
"""What one batch of a staged file unpacks to at most when it is read, and it alone is in memory: twice what
a run may have, so that no batch that was staged is refused. A file that says more was not staged."""

STAGED_UNPACKED_MAX_RECORDS = STAGED_UNPACKED_MAX_BYTES // 8
"""How many records, or headers of them, such a batch has: each says where its name and its value end."""

STAGING_RETENTION_MS = 24 * 60 * 60 * 1000
"""How long, by the store's clock, a staged file stays that no transaction names: a job may run for hours."""

STAGED_MAX_AGE_MS = STAGING_RETENTION_MS // 2
"""A transaction refuses an older staged file: a vacuum could delete it before the transaction is there."""

RETRY_RETENTION_MS = 24 * 60 * 60 * 1000
"""How long a transaction's retry key is remembered, by the wall clock of the group's coordinator."""

RETRY_KEYS_MAX = 100_000
"""Retry keys that a group remembers: some 50 MB, and 100 bytes more for each further partition of each of
their transactions. More than one a second, for a day, must be forgotten by who has the answers."""

SUBSCRIPTION_MAX_CHARS = 64 * KIB
"""Names of topics in one subscription, all together: each consumer instance keeps its own."""

GROUPS_LOOKED_AT = 500
"""Groups that are told of topics, or forgotten, in one go: each takes 50 µs of the event loop."""

DELETE_RETENTION_MS = 24 * 60 * 60 * 1000
"""Default of `delete.retention.ms`, as Kafka's: how long a compaction by key leaves a tombstone that it has
met, for readers that are under way."""

DELETE_HORIZON_STEPS = 64
"""A tombstone's horizon is rounded up to this part of `delete.retention.ms`, so that a segment's tag has at
most about as many of them, however often it is cleaned."""

COMPACTED_SEGMENT_BYTES = 64 * MIB
"""Uncompressed bytes that a compaction by key puts into one segment: what it holds at once."""

MERGE_GROWTH = 4
"""A merge makes a segment at least so many times as large as the largest that goes into it. So a record is
rewritten about log4(segment.bytes / bytes of an append) times: 6 from 32 KiB to 128 MiB; what waits for its
turn is at most three segments of each size."""

LAST_MERGE_GROWTH = 2
"""The same where nothing more fits in: what waits there would wait for ever, so that one more time pays."""

REPLAY_SEGMENT_RECORDS = 25
"""Replaying a log of keys spends as long on opening a segment as on this many records (0.3 ms)."""

DIRTY_RECORDS_MIN = 5_000
"""A log is compacted by key when replaying what has come since the last time costs as much as so many
records, 50 ms, and more than all the rest: a replay takes at most about twice the least possible."""

PUT_RETRY_LIMIT_S = 30.0
"""How long a put with unknown outcome is repeated before the leader steps down with OutcomeUnknown."""

PUT_RETRY_PAUSE_S = 0.05
"""First pause between such repeats; doubled each time."""

CACHE_BYTES = 64 * MIB
"""Batches freshly committed, or read from small segments, kept in memory over all partitions of a process."""

SMALL_SEGMENT_BYTES = 64 * KIB
"""A segment of so many uncompressed bytes is read whole and kept: opening costs more than what it holds."""

MODIFICATION_STEP_MS = 1
"""`modificationTime` grows by at least this from one segment to the next."""

SEQUENCE_MODULUS = 2**31
"""Producer sequences wrap as Kafka's int32 do (KIP-98)."""

PRODUCER_ID_MAX = 2**62 - 1
"""A client's producer id. Those above are lakelog's own: nobody can use one, or come upon one by chance."""

KEPT_PRODUCER_ID_MIN = PRODUCER_ID_MAX + 1
KEPT_PRODUCER_ID_MAX = 2**63 - 1
"""The ids of producers that lakelog keeps, which apply the transactions of groups: 62 random bits."""

PRODUCER_EPOCH_MAX = 2**31 - 1
"""`epoch * 2**32 + sequence` must fit a signed 64-bit txn version."""

TIMESTAMP_MIN_US = -62_135_596_800_000_000
TIMESTAMP_MAX_US = 253_402_300_799_000_000
"""Years 1 to 9999, less the last second: what ISO 8601 with four digits, and so every reader, can show."""

METADATA_ATTEMPTS_MAX = 20
METADATA_PAUSE_S = 0.05
"""How often, and after which pause, a change of the metadata log is tried again when another was first."""

STORE_RETRIES_MAX = 5
STORE_RETRY_LIMIT_S = 10
"""How often, and for how long, a request to an object store is repeated out of sight: less than
PUT_RETRY_LIMIT_S, so that a commit whose outcome is unknown is looked for several times."""

SQL_JSON_DEPTH_MAX = 32
"""Levels of a JSON value that SQL shows as columns: Arrow's files hold 64, thousands overflow its stack."""

REMOTE_LOOK_S = 60 * 60
"""How long a reader goes by what it knows of a remote table: a merged file stays there for a day."""

COPIED_AT_ONCE = 4
"""Files that a copy of a root reads and writes side by side; each is in memory once, whole."""

COPY_ATTEMPTS_MAX = 5
"""How often a copy of a root looks at the original anew, when a topic came or went under it."""

COPY_LOOKS_MAX = 1_000
"""How often a copy looks for the staged files of pending transactions, which live for milliseconds."""

TABLES_CHECKED_AT_ONCE = 16
"""Tables of a root that are looked at side by side: an object store takes a while for each."""

TABLES_ENDED_AT_ONCE = 16
"""Tables of a deleted topic that are claimed side by side: each takes some looks at the store and a write."""

SIGN_LOOKS = 20
"""How often a root that may be a copy is looked at for signs of life of gateways on it."""

SIGNS_OF_LIFE = 2
"""How many of one gateway show that a root is the one that it serves: the first may be of before it was
copied, where a copy is still under way."""

LINE_MAX_BYTES = 64 * MIB
"""The longest line that `lakelog produce` reads: more than any record may have, and no more of a file that is
no text.
"""
