"""A database of AWS Glue's Data Catalog, by boto3: its own chain finds region and credentials."""

from collections.abc import Sequence
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from jobs.catalog.entry import Entry
from jobs.catalog.hive_form import INPUT_FORMAT, OUTPUT_FORMAT, SERDE, parameters_of
from jobs.catalog.plan import Found
from log_tables.errors import AccessDenied, AlreadyExists, InvalidArgument, LakelogError, Unreachable

_DENIED = {"AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException"}
_WRONG = {"InvalidInputException", "ValidationException", "ResourceNumberLimitExceededException"}
_MISSING, _EXISTS = "EntityNotFoundException", "AlreadyExistsException"


class GlueCatalog:
    """The database `database`. `url` is another endpoint than that of the region, `catalog` another account's
    catalog. See `Catalog`.
    """

    def __init__(self, database: str, url: str | None = None, catalog: str | None = None) -> None:
        """Raises InvalidArgument without a region."""
        self._database = database
        self._of = {} if catalog is None else {"CatalogId": catalog}
        try:
            self._glue: Any = boto3.client("glue", endpoint_url=url)
        except (BotoCoreError, ValueError) as error:
            raise InvalidArgument(
                f"Glue cannot be asked ({error}); set AWS_REGION, or a profile of the AWS configuration"
            ) from None

    def tables(self) -> Sequence[Found]:
        found, token = list[Found](), dict[str, str]()
        while True:
            answer = self._asked("get_tables", DatabaseName=self._database, **token)
            if answer is None:
                return found
            found += (Found(each["Name"], each.get("Parameters", {})) for each in answer["TableList"])
            if not answer.get("NextToken"):
                return found
            token = {"NextToken": answer["NextToken"]}

    def table(self, name: str) -> Found | None:
        answer = self._asked("get_table", DatabaseName=self._database, Name=name)
        return None if answer is None else Found(name, answer["Table"].get("Parameters", {}))

    def begin(self) -> None:
        if self._asked("get_database", Name=self._database) is None:
            made = {"Name": self._database, "Description": "Topics of lakelog."}
            self._asked("create_database", DatabaseInput=made)

    def create(self, entry: Entry) -> None:
        columns = [{"Name": each.name, "Type": each.sql, "Comment": each.comment} for each in entry.columns]
        table = {
            "Name": entry.name,
            "Description": entry.comment,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": parameters_of(entry),
            "StorageDescriptor": {
                "Columns": columns,
                "Location": entry.location,
                "InputFormat": INPUT_FORMAT,
                "OutputFormat": OUTPUT_FORMAT,
                "SerdeInfo": {"SerializationLibrary": SERDE, "Parameters": {"path": entry.location}},
            },
        }
        self._asked("create_table", DatabaseName=self._database, TableInput=table)

    def drop(self, name: str) -> None:
        self._asked("delete_table", DatabaseName=self._database, Name=name)

    def _asked(self, operation: str, **arguments: Any) -> Any:
        """The answer; None if there is no such thing."""
        try:
            return getattr(self._glue, operation)(**self._of, **arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] == _MISSING and operation != "create_table":
                return None
            raise _refused(error) from None
        except BotoCoreError as error:
            raise Unreachable(
                f"Glue does not answer ({error}); see the AWS configuration, or try again later"
            ) from None


def _refused(error: ClientError) -> LakelogError:
    said = error.response["Error"]
    code, text = said["Code"], f"Glue refused it: {said.get('Message') or said['Code']}"
    if code == _EXISTS:
        return AlreadyExists(f"{text}; look whose it is")
    if code in _DENIED:
        return AccessDenied(f"{text}; allow glue:*Table* and glue:*Database on this database")
    if code in _WRONG:
        return InvalidArgument(f"{text}; change what it names")
    return Unreachable(f"{text} ({code}); try again later")
