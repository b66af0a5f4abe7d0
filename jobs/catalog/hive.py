"""A database of Hive's metastore, by its Thrift API."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from jobs.catalog.entry import Entry
from jobs.catalog.hive_form import INPUT_FORMAT, OUTPUT_FORMAT, SERDE, parameters_of
from jobs.catalog.plan import Found
from log_tables.errors import AccessDenied, AlreadyExists, InvalidArgument, LakelogError, Unreachable

_PORT = 9083
_TIMEOUT_MS = 60_000
_AT_ONCE = 500
"""The tables of one request."""

_QUIET = {"DO_NOT_UPDATE_STATS": "true"}
"""Otherwise the metastore lists the files of the table."""


class HiveCatalog:
    """The database `database` of the metastore at `url`, `thrift://host:9083`. See `Catalog`."""

    def __init__(self, url: str, database: str) -> None:
        """Raises InvalidArgument for another URL."""
        parts = urlsplit(url)
        if parts.scheme != "thrift" or not parts.hostname:
            raise InvalidArgument(f"{url!r} is no URL of a metastore; write it as thrift://host:{_PORT}")
        self._host, self._port, self._database = parts.hostname, parts.port or _PORT, database

    def tables(self) -> Sequence[Found]:
        with self._client() as hive:
            try:
                names = hive.get_all_tables(self._database)
            except (ttypes.NoSuchObjectException, ttypes.MetaException):
                if self._database in hive.get_all_databases():
                    raise
                return []
            found = list[Found]()
            for start in range(0, len(names), _AT_ONCE):
                part = hive.get_table_objects_by_name(self._database, names[start : start + _AT_ONCE])
                found += (Found(each.tableName, each.parameters or {}) for each in part)
            return found

    def table(self, name: str) -> Found | None:
        with self._client() as hive:
            found = hive.get_table_objects_by_name(self._database, [name])
            return Found(name, found[0].parameters or {}) if found else None

    def begin(self) -> None:
        with self._client() as hive:
            if self._database not in hive.get_all_databases():
                hive.create_database(ttypes.Database(self._database, "Topics of lakelog.", parameters={}))

    def create(self, entry: Entry) -> None:
        columns = [
            ttypes.FieldSchema(each.name, _hive_type(each.sql), each.comment) for each in entry.columns
        ]
        serde = ttypes.SerDeInfo(serializationLib=SERDE, parameters={"path": entry.location})
        table = ttypes.Table(
            tableName=entry.name,
            dbName=self._database,
            owner="lakelog",
            tableType="EXTERNAL_TABLE",
            parameters=parameters_of(entry),
            partitionKeys=[],
            sd=ttypes.StorageDescriptor(
                cols=columns,
                location=entry.location,
                inputFormat=INPUT_FORMAT,
                outputFormat=OUTPUT_FORMAT,
                serdeInfo=serde,
                bucketCols=[],
                sortCols=[],
                numBuckets=-1,
                parameters={},
            ),
        )
        with self._client() as hive:
            hive.create_table_with_environment_context(table, ttypes.EnvironmentContext(_QUIET))

    def drop(self, name: str) -> None:
        with self._client() as hive:
            try:
                hive.drop_table(self._database, name, deleteData=False)
            except ttypes.NoSuchObjectException:
                return

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """A connection to the metastore, whose errors become ours."""
        socket = TSocket(self._host, self._port)
        socket.setTimeout(_TIMEOUT_MS)
        transport = TBufferedTransport(socket)
        try:
            transport.open()
            yield ThriftHiveMetastore.Client(TBinaryProtocol(transport))
        except (TTransportException, OSError) as error:
            raise Unreachable(
                f"no metastore answers at {self._host}:{self._port} ({error}); start it, or name "
                "another by --url"
            ) from None
        except TException as error:
            raise _refused(error) from None
        finally:
            transport.close()


def _refused(error: TException) -> LakelogError:
    text = f"the metastore refused it: {getattr(error, 'message', None) or error}"
    if isinstance(error, ttypes.AlreadyExistsException):
        return AlreadyExists(f"{text}; look whose it is")
    if "AccessControlException" in text or "Permission denied" in text:
        return AccessDenied(f"{text}; let its user read the root")
    return InvalidArgument(f"{text}; see its log")


def _hive_type(sql: str) -> str:
    """Hive's name of a type: it has one kind of times."""
    return re.sub(r"\btimestamp_ntz\b", "timestamp", sql)
