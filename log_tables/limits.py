"""Every bound, named, with its unit and its reason."""

KIB = 1024
MIB = 1024 * KIB

DELETED_KEPT_MAX = 16
"""Deleted topics of one name that can be brought back; a topic's record holds them all."""

TOPIC_NAME_MAX_CHARS = 249
"""Kafka's: a directory name with a partition suffix must stay under 255 bytes."""

PARTITIONS_MAX = 10_000
"""Partitions of a topic: each is a table, so a larger number is a mistake rather than a wish."""

RECORD_MAX_BYTES = 1 * MIB + 12
"""Default of `max.message.bytes`: Kafka's 1 MiB plus its batch overhead."""

RECORD_HARD_MAX_BYTES = 256 * MIB
"""Upper end of `max.message.bytes`: 32-bit Arrow offsets must hold several such values."""

BATCH_MAX_BYTES = 64 * MIB
"""Records of one commit. It bounds what a leader writes again after a failure, and what a reader holds at
once."""

TEMPORARY_MAX_AGE_MS = 60 * 60 * 1000
"""A temporary file that is older was left by a put that was killed: none takes nearly as long."""

PASSWORD_MIN_CHARS = 8
"""Of a password that people choose, by characters: NIST SP 800-63B (revision 3, 5.1.1.2) asks for so many at
least. Revision 4 asks for 15 where nothing but the password lets in, and docs/security.md advises them.
"""

PASSWORD_MAX_CHARS = 256
"""SASLprep and the KDF read all of a password; nobody types a longer one."""

REQUEST_RECORDS_MAX = 200_000
"""Records in one JSON request: each takes some 500 bytes while it is decoded, and 7 µs of the event loop."""

BODY_DEPTH_MAX = 500
"""Arrays and objects within one another in a JSON value: half of what the decoder can follow where it has all
of Python's stack, so that how deep its caller stands makes no difference.
"""

JSON_FIELD_BYTES = 140
JSON_HEADER_BYTES = 360
"""Memory of each field of a record, and of each of its headers, while JSON is decoded: the measured maximum.
"""

KEY_STEPS_MAX = 8
"""Steps of the pointer to a key in values: for each one the rest of the value is read again."""

CSV_COLUMNS_MAX = 1_024
CSV_ROW_COMMAS_MAX = 16_384
CSV_ROW_MAX_BYTES = 8 * MIB
"""Columns of CSV, and commas and bytes of one row: it becomes objects of Python before it is counted."""

JSON_ANSWER_BYTES = 1_000
"""Memory of a record of v3 until it is answered, besides its content: its row, and its part of the answer."""

EVENTS_BYTES = 1 * MIB
"""Records of a live tail that are read and sent at once: what a slow client holds."""

HEARTBEAT_S = 15.0
"""How long a live tail is silent: proxies end what is silent for a minute."""

READ_SEGMENTS_MAX = 256
"""Segments that a fetch or a poll reads, and so about how many files it opens: tens of thousands of segments
of a few records are a megabyte together, and one answer would take longer than its client waits."""

HEAD_MAX_BYTES = 64 * KIB
"""The line and the headers of a request, or the bytes between two pieces of a chunked body."""

HEADER_LINES_MAX = 256
"""Headers of a request: a route searches all of them for each one that it wants."""

PEER_KEPT_S = 2
"""How long a gateway keeps an idle connection to another gateway. `connections_max_idle_ms` is at least twice
that, so that the other side does not close first: a request that meets a close may have been done or not."""

SMALL_CHUNKS_MAX = 10_000
CHUNK_MEAN_MIN_BYTES = 16
"""Small chunks that a body may have, and the mean size of all chunks beyond that number: a chunk costs the
event loop as much as kilobytes do."""

PIPELINED_MAX = 64
"""Requests that a client may send before an earlier one is answered: each takes some kilobytes."""

RESERVED_CONNECTIONS = 16
"""Connections beyond `max_connections`, for requests about the health of the gateway only."""

RESERVED_PEER_CONNECTIONS = 64
"""Connections beyond those, for requests of other gateways: each serves one request."""

HANDSHAKE_S = 10.0
"""How long the TLS handshake of a connection may take; an honest one takes milliseconds and two round
trips."""

HANDSHAKES_LET_IN = 64
"""TLS handshakes that may be under way where there are as many connections as there may be: some of them get
a reserved connection, or hear that there are too many.
"""

LINGER_S = 2.0
"""How long a client that was refused in the middle of its request may go on sending, so that it reads the
answer."""

UNSENT_MAX_BYTES = 256 * MIB
"""Answers that clients have not read yet, over all connections."""

SMALL_BODY_MAX_BYTES = 1 * MIB
"""A body without records: a topic with every setting takes a few hundred bytes."""

SMALL_BODY_VALUES_MAX = 125_000
SMALL_VALUE_BYTES = 128
"""Values in such a body, as many as a commit of 30,000 partitions has; and the memory of each when decoded.
"""

SMALL_BODIES_MAX_BYTES = 32 * MIB
"""All such bodies with their values, in addition to `buffer_memory`: records and they do not take each
other's room."""

KAFKA_ELEMENTS_MAX = 125_000
"""Elements of all arrays in one message of Kafka's protocol: a commit of 30,000 partitions has as many. An
element may be two bytes, and takes some 300 of memory when it is decoded."""

KAFKA_NAMES_MAX = 10_000
"""Elements of one array in a request of Kafka's protocol: topics, groups, members, or partitions of a topic,
of which there are at most PARTITIONS_MAX. To look one up, to refuse it and to answer takes 10 to 60 µs of the
machine, so one array at most 0.6 s."""

KAFKA_TEXT_MAX_BYTES = 32_767
"""A text in Kafka's protocol, as Kafka has it. Only the old layout bounds it by itself."""

KAFKA_PLAIN_FRAME_MAX_BYTES = 24 * MIB
"""A request of Kafka's protocol that brings no records: the assignments of the largest group are 16 MiB. It
is copied as it is decoded."""

KAFKA_INLINE_ELEMENTS = 500
"""Elements of a message that the event loop decodes or encodes at once: about 2 ms. One with more takes its
turn in a thread."""

TURN_S = 0.002
"""How long a wide request has the event loop before others have it for as long."""

AUTO_CREATED_MAX = 50
"""Topics that one Metadata request makes: each takes some 20 ms. A client asks again for those beyond."""

DECODED_AT_ONCE_MARKS = 5_000
DECODED_AT_ONCE_BYTES = 1 * MIB
"""Commas, braces and brackets, and bytes, of a JSON list that one call of a decoder reads, about: it holds
the interpreter's lock for 1 to 3 ms meanwhile, and so the event loop."""

FREED_AT_ONCE = 1_000
"""Objects that one step frees, for the same reason: 0.1 to 0.4 ms."""

ACCEPT_RANGES_MAX = 100
"""Media ranges of an Accept: browsers send less than ten, and each takes microseconds of the event loop."""

NAMES_PER_REQUEST = 100
"""Partitions of a request, and other elements, that count as one request does for `request_rate` and
`principal_requests_max`: one takes some 5 µs, as much as a hundredth of a small request."""

SMALL_BODY_FREE_BYTES = 16 * KIB
"""The part of each such body that takes no room, so that a commit always fits. The number of connections
bounds it."""

STREAM_RECORDS_MAX = 1_000_000
"""Records in one Arrow stream, and headers of all of them. A null takes no byte of the stream, and 31 bytes
of memory while it becomes a record; a key takes 1.2 µs of the event loop."""

STREAM_BATCHES_MAX = 10_000
"""Record batches in one Arrow stream of a client: a batch of a hundred bytes takes Arrow some kilobytes."""

STREAM_FIELDS_MAX = 32
"""Columns of an Arrow stream, nested ones included: records have six, and two inside of headers."""

RECORD_COLUMNS_BYTES = 24
"""Memory of a record besides key, value and headers: its timestamp, and where each of them begins."""

ROW_BYTES = 136
ROW_HEADER_BYTES = 200
"""Memory of a record that waits as a row, and of each of its headers, besides their bytes: Python's objects,
and their places in lists. Measured."""

REQUEST_BYTES = 8 * KIB
"""Memory of a request that waits for its commit, besides its records: its connection, its head, and the
objects on its way. Measured: 11,000 bytes with acks=all, and 3,000 with acks=1, whose client is answered."""

PART_BYTES = 2 * KIB
"""The same of each partition that it has records for. Measured."""

ROWS_MAX = 2_000
"""Records of a request that wait as rows. Those of a larger one become columns at once, in a thread."""

LOOKS_AT_ONCE = 16
"""Shards, or partitions of wide requests, that are looked at side by side: half of the threads that look at
the store. The others are for those who ask for one, also when the store hangs."""

APPENDS_AT_ONCE = 256
"""Partitions that are appended to at once, over all requests to more partitions than this. A commit takes
some 2 ms of the machine, so a small request waits for little more than 0.5 s of them."""

COMPRESSED_MIN_BYTES = 16 * KIB
"""Records of a segment that are worth compressing: to set up the compression of all columns takes 0.4 ms,
more than all else that is done to a small segment. A merge compresses what was small."""

ROW_GROUP_MAX_ROWS = 65_536
"""Rows in a row group: a seek reads at most one superfluous group."""

ROW_GROUP_TARGET_BYTES = 4 * MIB
"""Uncompressed bytes in a row group, for the same reason when records are large."""

WHOLE_SEGMENT_BYTES = 8 * MIB
"""A segment file of at most so many bytes is read in one request: ranges of it would take as long."""

CHECKPOINT_INTERVAL_COMMITS = 100
"""Commits between checkpoints: opening a table reads one checkpoint and about as many commits at most."""

LOG_RETENTION_MS = 60 * 60 * 1000
"""Commit files younger than this are never deleted: a leader relies on reading the claim that fenced it."""

TOPIC_LOG_RETENTION_MS = 24 * 60 * 60 * 1000
"""The same of a topic's table, where Delta's streams of other engines resume after a day off."""

FOLD_ACTIONS_MAX = 10_000
"""Files that one commit of a topic's table adds and removes: some 5 MB, and 0.2 s of the machine."""

CONFIRMATION_MAX_AGE_S = 30 * 60
"""A leader re-opens a table that it confirmed longer ago. It is half of LOG_RETENTION_MS, so that a fence
cannot have been deleted between the read and the put, unless a clock loses half an hour."""

TOMBSTONE_RETENTION_MS = LOG_RETENTION_MS
"""How long a removed file stays in the snapshot. Every checkpoint holds them all, and at 20 commits a second
a partition removes 1.7 million a day. It is as long as commits stay: a writer that checks within the hour
whether its commit counted (`Table.transact`) finds its file in the table or among the removed ones."""

FILE_RETENTION_MS = 24 * 60 * 60 * 1000
"""How long a removed file stays on disk whose records were deleted, or moved: time to notice a mistake. A
table remembers deleted segments as long, so that they can be brought back."""

DELETED_SEGMENTS_MAX = 10_000
"""Deleted segments that a table remembers: 5 MB of memory, as if they were still part of it. Retention takes
merged segments, of which a day has some hundreds."""

REPLACED_FILE_RETENTION_MS = LOG_RETENTION_MS
"""How long the file of a segment stays that a merge or a compaction by key has replaced: at 20 commits a
second that is 72,000 an hour. It is as long as commits stay, so a version whose commit is there can be read.
lakelog's own readers need no time: they go on in the file that replaced it."""

TIDY_TOMBSTONES = 5_000
"""A table that has removed so many files within the hour is vacuumed by each run of maintenance, not by one
an hour: at 20 commits a second a run meets 6,000."""

REWRITE_MAX_AGE_MS = 3 * 60 * 60 * 1000
"""A rewrite is not committed when it put its first file longer ago. It is half of VACUUM_MARK_AGE_MS, so that
no file which a vacuum has marked becomes part of a table, unless a clock loses three hours."""

VACUUM_MARK_AGE_MS = 2 * REWRITE_MAX_AGE_MS
"""An unreferenced file below the high watermark that is younger, by the store's clock, may belong to a
rewrite that is about to be committed. An older one belongs to none."""

LEDGER_NAMES_MAX = 100_000
"""Names in one ledger of a vacuum: 5 MB, which are read at once."""

STAGED_BATCH_BYTES = 8 * MIB
"""One record batch of a staged file, which is appended at once."""

STAGED_FILE_BYTES = 64 * MIB
"""A writer that stages more begins another file: this is about what a writer holds, and a reader of a run."""

STAGED_RUN_MAX_BYTES = 2 * RECORD_HARD_MAX_BYTES
"""The records of one partition in a staged file, both encoded and not. A writer that stages more begins
another file. A transaction is refused that names a file with more; a file of a committed one is always read.
"""

STAGED_UNPACKED_MAX_BYTES = 2 * STAGED_RUN_MAX_BYTES
"""One batch of a staged file when it is unpacked; a reader holds one at a time. It is twice what a run may
have, so that no batch of ours is refused. A file with more was not staged by lakelog."""

STAGED_UNPACKED_MAX_RECORDS = STAGED_UNPACKED_MAX_BYTES // 8
"""Records in such a batch, or headers of them: each takes the 8 bytes that say where its key and value end.
"""

STAGING_RETENTION_MS = 24 * 60 * 60 * 1000
"""How long, by the store's clock, a staged file stays without a transaction that names it: a job may run for
hours."""

STAGED_MAX_AGE_MS = STAGING_RETENTION_MS // 2
"""A transaction refuses an older staged file: a vacuum could delete it before the transaction is committed.
"""

RETRY_RETENTION_MS = 24 * 60 * 60 * 1000
"""How long a transaction's retry key is remembered, by the wall clock of the group's coordinator."""

RETRY_KEYS_MAX = 100_000
"""Retry keys that a group remembers: some 50 MB, and 100 bytes for each further partition of their
transactions. A client with more than one transaction a second, all day, has to forget the keys of answered
ones."""

SUBSCRIPTION_MAX_CHARS = 64 * KIB
"""The names of topics in one subscription, all together: each consumer instance keeps its own."""

CLASSIC_MEMBER_MAX_BYTES = 1 * MIB
"""The metadata of all protocols that a member of a classic group may send."""

CLASSIC_GROUP_MAX_BYTES = 16 * MIB
"""The ids, the metadata and the assignments of all members of a classic group: they are one record. Base64
makes a third more of it, which stays far below BATCH_MAX_BYTES."""

NEW_MEMBER_JOIN_MS = 300_000
"""How long the first JoinGroup of a member may be held, as in Kafka: a new member sends no heartbeats."""

OFFSET_METADATA_MAX_CHARS = 4_096
"""The note with a committed offset, as Kafka's offset.metadata.max.bytes."""

OFFSETS_AT_ONCE = 500
"""Offsets of one request that are committed in one go: each takes some 10 µs of the event loop."""

METADATA_HISTORY_MS = 7 * 24 * 60 * 60 * 1_000
"""How long each version of a topic and of the rules of access stays in the metadata log."""

METADATA_HISTORY_BYTES = 64 * MIB
"""Bytes, uncompressed, of all that stays for so long: a start reads it. Gateways that lead thousands of
partitions write records of 100 kB."""

METADATA_WINDOW_MS = 24 * 60 * 60 * 1_000
"""Segments of the metadata log are merged with those of the same window."""

UNDO_ACTS_MAX = 8
"""Acts of operators on the offsets of a group that can be undone."""

UNDO_OFFSETS_MAX = 20_000
"""Offsets of all these acts together: their record is about 2 MB at most."""

UNDO_GROUPS_MAX = 1_000
"""Deleted groups of a partition of `__consumer_offsets` whose offsets are kept for an undo."""

TARGET_AT_ONCE = 2_000
"""Members, topics and partitions of a group whose target assignment the event loop computes: about 2 ms. That
of a larger one is computed in a thread."""

GROUPS_LOOKED_AT = 500
"""Groups that hear of topics, or are forgotten, in one go: each takes 50 µs of the event loop."""

DELETE_RETENTION_MS = 24 * 60 * 60 * 1000
"""Default of `delete.retention.ms`, as in Kafka: how long compaction by key keeps a tombstone that it has
met, for readers that are under way."""

DELETE_HORIZON_STEPS = 64
"""The horizon of a tombstone is rounded up to this fraction of `delete.retention.ms`, so that the tag of a
segment has about as many of them at most, however often it is cleaned."""

COMPACTED_SEGMENT_BYTES = 64 * MIB
"""Uncompressed bytes that compaction by key puts into one segment, which it holds at once."""

MERGE_GROWTH = 4
"""A merge makes a segment at least this many times as large as its largest input. So a record is rewritten
about log4(segment.bytes / bytes of an append) times: 6 from 32 KiB to 128 MiB. At most three segments of each
size wait for a merge."""

LAST_MERGE_GROWTH = 2
"""The same where nothing else fits in: such segments would wait for ever, so one more rewrite pays."""

YOUNG_SEGMENTS_MAX = 250
"""Segments of a partition that stay young: with so many newer ones, no segment waits for merge.min.age.ms.
That lets more segments come, so that each is rewritten less often, and hundreds are as good as any number."""

REWRITTEN_FILES_MAX = 1_000
"""Segments that one commit of a merge or a retype replaces, or one of a truncation or a move removes: with up
to two actions for each, of about 500 bytes, the leader reads and checks it in some 20 ms. A compaction by key
has no bound: a tombstone may go only together with the records that it deletes."""

OFFERED_AFTER = 2
"""So many races that a commit has lost to the leader before it is offered to it."""

OFFER_LOOK_S = 0.1
"""How often at most a leader looks for an offer, while it commits: on a paid store one small
request, a twenty-fifth of the price of that commit's two puts."""

OFFER_MAX_AGE_MS = 60_000
"""The leader does not take an older offer, by the store's clock: who made it has gone. With
REWRITE_MAX_AGE_MS it is far below VACUUM_MARK_AGE_MS, so the files of an offer are there."""

REPLAY_SEGMENT_RECORDS = 25
"""Opening a segment takes a replay as long as this many records do (0.3 ms)."""

DIRTY_RECORDS_MIN = 5_000
"""A log is compacted by key when replaying its new part costs as much as this many records, 50 ms, and more
than the rest: then a replay takes at most about twice the least possible time."""

PUT_RETRY_LIMIT_S = 30.0
"""How long a put with an unknown outcome is repeated before the leader steps down with OutcomeUnknown."""

PUT_RETRY_PAUSE_S = 0.05
"""The first pause between such repeats; each one is twice as long as the last."""

CACHE_BYTES = 64 * MIB
"""Batches kept in memory, over all partitions of a process: fresh ones, and those of small segments."""

BEGUN_BYTES, BEGUN_MAX = 32 * MIB, 64
"""Row groups of larger segments that were read in part, and are kept for the next read of their reader, over
all partitions of a process: eight readers that are behind have one each of ROW_GROUP_TARGET_BYTES."""

ROW_SEGMENT_MAX, ROW_SEGMENT_MAX_BYTES = 500, 256 * KIB
"""Records of a segment that is written from rows: more of them take longer so than as columns (measured)."""

ROW_SEGMENT_BYTES = 1 * KIB
"""A segment of rows in the cache takes so much beyond its rows (measured)."""

COLUMN_BYTES = 880
"""A column of a batch in memory takes so much beyond its rows (measured): those of a batch without declared
columns, of which headers are two, take 5,200 bytes.
"""

SMALL_SEGMENT_BYTES = 64 * KIB
"""A segment of at most so many uncompressed bytes is read whole and kept: opening it costs more than its
content."""

MODIFICATION_STEP_MS = 1
"""`modificationTime` grows by at least this from one segment to the next."""

SEQUENCE_MODULUS = 2**31
"""Producer sequences wrap as Kafka's int32 do (KIP-98)."""

PRODUCER_BATCHES = 5
"""The newest batches of a producer in a partition whose repeats are answered with their offsets, as in Kafka:
one for each request that a client has under way.
"""

REPEAT_COMMITS = 100
"""The newest commits of earlier leaders in which a leader looks for them."""

PRODUCER_ID_MAX = 2**62 - 1
"""The largest producer id of a client. Those above are lakelog's own, and no client can have one."""

BRIEF_PRODUCER_ID_MIN = PRODUCER_ID_MAX + 1 - 2**56
"""The ids from here to PRODUCER_ID_MAX are those that Kafka's clients are given, and those of single
requests: each takes another one, so a table forgets them sooner.
"""

HTTP_PRODUCER_ID_MAX = BRIEF_PRODUCER_ID_MIN - 1
"""The largest producer id that a client of HTTP may choose."""

ONCE_PRODUCER_ID_MIN = PRODUCER_ID_MAX + 1 - 2**55
"""The ids from here to PRODUCER_ID_MAX stand for single requests with an Idempotency-Key. No client may name
one: it could make the log take another's request for a repeat.
"""

BRIEF_PRODUCER_MIN_MS, BRIEF_PRODUCER_MAX_MS = 15 * 60 * 1000, 30 * 60 * 1000
"""How long a table keeps such a producer after its last batch: `producer.id.expiration.ms`, between these.
Kafka's clients repeat a batch for 2 minutes in Java, and for 5 in librdkafka.
"""

KEPT_PRODUCER_ID_MIN = PRODUCER_ID_MAX + 1
KEPT_PRODUCER_ID_MAX = 2**63 - 1
"""The ids of lakelog's own producers, which apply the transactions of groups: 62 random bits."""

PRODUCER_EPOCH_MAX = 2**31 - 1
"""`epoch * 2**32 + sequence` must fit a signed 64-bit txn version."""

TIMESTAMP_MIN_US = -62_135_596_800_000_000
TIMESTAMP_MAX_US = 253_402_300_799_000_000
"""Years 1 to 9999, less the last second: ISO 8601 with four digits, and so every reader, can show them."""

TIMESTAMP_BOUNDS = "the years 1 to 9999 without the last second of 9999"
"""Both, as errors say it."""

NO_TIMESTAMP_MS = -1
"""The time that stands for none in Kafka's protocol, and so at every door: the record gets that of its
append. Kafka's clients could not tell a record of this very millisecond from one without a time."""

METADATA_ATTEMPTS_MAX = 20
METADATA_PAUSE_S = 0.05
METADATA_PAUSE_MAX_S = 1.0
"""How often a change of the metadata log is retried when another process was first, and the pauses between.
"""

STORE_RETRIES_MAX = 5
STORE_RETRY_LIMIT_S = 10
"""How often, and for how long, the client of an object store repeats a request by itself. The time is less
than PUT_RETRY_LIMIT_S, so that a commit with an unknown outcome is looked for several times."""

SQL_OPERATORS_MAX = 500
"""Operators of a statement. Each may be one level more of its plan: to plan 1,000 terms of a sum takes 4 s of
the machine, and 9,000 overflow the stack of the process.
"""

SQL_JSON_DEPTH_MAX = 32
"""Levels of a JSON value that SQL shows as columns: files of Arrow hold 64, and thousands overflow its stack.
"""

REMOTE_LOOK_S = REPLACED_FILE_RETENTION_MS // 2000
"""How long a reader relies on its snapshot of a remote table: half as long as a file stays that was merged
there."""

COPIED_AT_ONCE = 4
"""Files that a copy of a root reads and writes at once; each is in memory once, whole."""

COPY_ATTEMPTS_MAX = 5
"""How often a copy of a root begins again because a topic was created or deleted in the original."""

COPY_LOOKS_MAX = 1_000
"""How often a copy looks for the staged files of pending transactions, which live for milliseconds."""

TABLES_CHECKED_AT_ONCE = 16
"""Tables of a root that are read at once: an object store takes a while for each."""

TABLES_AT_ONCE = 16
"""Tables of a topic that is altered or deleted, at once: each takes some reads of the store and a write."""

SIGN_LOOKS = 20
"""How often signs of life of gateways are looked for on a root that may be a copy."""

SIGNS_OF_LIFE = 2
"""Signs of one gateway that show that it serves this root. A single one may have been copied with the root,
by a copy that is still under way."""

LINE_MAX_BYTES = 64 * MIB
"""The longest line that `lakelog produce` reads: longer than any record, and a bound for files that are no
text."""

COLUMNS_MAX = 256
"""Declared columns of a topic."""

LEAF_COLUMNS_MAX = 1_024
"""Columns of Parquet that hold them: an empty object in an array takes 8 bytes of memory of each."""

COLUMN_NAME_MAX_CHARS = 128
COLUMNS_TEXT_MAX_CHARS = 64 * KIB
"""A declaration: 256 columns with long paths have a quarter of it."""

NESTED_TYPES_MAX = 8
"""How deep the type of a declared column is nested."""

VALUE_DEPTH_MAX = 128
"""How deep objects and arrays of a value are nested that has declared columns: Python's own limit depends on
where it is called."""

VALUE_ERROR_MAX_BYTES = 200
"""The path and the reason for which a value does not fit its declared columns."""

POINTER_SHOWN_BYTES = 100
"""The pointer in it."""

NESTED_FIELD_MAX_BYTES = 1 * MIB
"""The JSON of an array, map or struct for a column: 3 bytes of it become an object of Python. To find out why
one does not fit takes about 1 µs of a thread for each byte, so a second at most."""

EXPANDED_MAX_BYTES = 64 * MIB
"""The items of the arrays and maps of one value, as columns: `{}` in 3 bytes of JSON has all fields of a
struct."""

WIDE_COLUMNS_BYTES = 4 * MIB
"""From so many bytes of such items on, the commits of a process make columns one after the other."""

FIELDS_AT_ONCE = 16_384
"""Values of one schema that are read a field at a time together."""

SAME_SCHEMA_MIN = 32
"""Values of one schema from which on they are read a field at a time."""

SCHEMA_FIELDS_MAX = 20_000
"""Fields of a schema, those of a type counted in each place where it is used."""

SCHEMA_TEXT_MAX_CHARS = 1_048_576
PROTO_COMPILE_MAX_S = 20.0
PROTO_COMPILE_MAX_BYTES = 512 * MIB
PROTO_COMPILED_MAX_BYTES = 8 * MIB
"""The text of a schema, and the time and the memory of the compiler of Protobuf, and what it writes. 1 MiB of
fields takes it a second and 100 MiB."""

NAMED_SCHEMAS_MAX = 20
"""Schemas that one produce request names."""

WANTED_SCHEMAS_MAX = 100
"""Ids of schemas that are not known, which a refusal waits for."""

MISSING_SCHEMAS_MAX = 16
"""Ids of schemas that were not known that the tag of a segment names."""

SCHEMA_REFERENCES_MAX = 1_000
SCHEMA_DEPTH_MAX = 64
"""Schemas that one schema refers to, and how deep: those of large companies have some 100."""

SCHEMAS_MAX = 200_000
SCHEMAS_TEXT_MAX_CHARS = 256 * MIB
"""Schemas of one source in memory: whoever writes to the topic of a registry could add them for ever."""

LOOK_UPS_BURST = 20
LOOK_UPS_PER_S = 1.0
ROOT_LOOK_UPS_BURST = 1_000
ROOT_LOOK_UPS_PER_S = 20.0
LOOK_UP_AGAIN_S = 1.0
LOOK_UPS_NOTED_MAX = 10_000
"""How often a source of schemas is asked for ids that are not known: at once, each second, the same two for
objects of the root, each id; and the ids of which it is known when they were asked for."""

REGISTRY_TIMEOUT_S = 2.0
REGISTRY_PAUSE_S, REGISTRY_PAUSE_MAX_S = 1.0, 10.0
REGISTRY_ANSWER_MAX_BYTES = 8 * MIB
REGISTRY_AT_ONCE = 8
"""How long a registry may take, how long one that does not answer is left alone at first and in the end, and
the size of an answer, and requests at once."""

TYPED_AT_ONCE = 1_024
TYPED_AT_ONCE_BYTES = 1 * MIB
"""Values of which columns are made at once, and their bytes: other threads wait for a few milliseconds."""

JUDGED_AT_ONCE_BYTES = 256 * KIB
"""Values of a batch that are copied at once to see whether they fit."""

JUDGED_NESTED_MAX_BYTES = 64 * KIB
"""A longer value is read by the plain rules where a column is nested, which bound what is in it."""

STATS_COLUMNS_MAX = 32
STATS_TEXT_CHARS = 32
STATS_MAX_BYTES = 4 * KIB
"""The stats of declared columns in an add: columns, characters of a text, bytes of all."""

DECISIONS_KEPT_MAX = 32_768
"""Decisions of the authorizer that a gateway keeps, of some 500 bytes each: principals × topics in use."""

SCRAM_ITERATIONS_MIN, SCRAM_ITERATIONS_MAX = 4_096, 16_384
"""Hashes of a password, by Kafka's bounds (KIP-554): a check, or a guess, takes milliseconds."""

ACL_NAME_MAX_CHARS = 1_000
"""Characters of a resource's name in an ACL: a decision may look at a prefix of each length."""

KAFKA_RESOURCES_MAX = 5_000
"""Topics whose settings one request of a Kafka client reads, or that it changes: an answer may have all
settings of each, some 15 KB."""

KAFKA_ANSWERS_MAX_BYTES = 128 * MIB
"""Records in answers to Kafka's clients that they have not taken yet, of all connections together."""

CULPRITS_MAX = 1_000
"""Records of one batch or request that its refusal names: each takes 150 bytes of the answer, and of those
that are sent again the next ones are named then."""

ENCODED_BYTES = 16 * MIB
"""Records that are kept as Kafka's clients were given them."""

ENCODED_COST_BYTES = 600
"""A stretch of them, and each of its batches, take so much beyond their bytes (measured)."""

ENCODED_STRETCHES_MAX = 64
"""Stretches of a partition in one answer: each brings batches of its own, which clients unpack one by one."""

KAFKA_ANSWER_MAX_BYTES = 8 * MIB
"""Records in one answer to a Kafka client, whatever it asks for; more only where one record is larger."""
