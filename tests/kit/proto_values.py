"""Files of Protobuf for tests, and messages of them."""

from typing import Any

from hypothesis import strategies as st

from log_tables.schemas.protobuf_writer import from_json
from log_tables.schemas.schema import Schema, SchemaKind

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FLOATS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["NaN", "Infinity"]))

FLIGHT = """
syntax = "proto3";
package air;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Flight {
  int64 id = 1;
  string carrier = 2;
  optional double delay = 3;
  google.protobuf.Timestamp at = 4;
  repeated string stops = 5;
  map<string, int64> seats = 6;
  Kind kind = 7;
  bytes raw = 8;
  google.protobuf.Int64Value gate = 9;
  Flight next = 10;
  oneof place { string airport = 11; int64 zone = 12; }
  sint32 small = 13;
  fixed32 fixed = 14;
  bool ok = 15;
  repeated double numbers = 16;
  enum Kind { DAY = 0; NIGHT = 1; }
}
message Other { message Inner { int32 a = 1; } Inner inner = 1; }
"""
OLD = """
syntax = "proto2";
message Old {
  required int64 id = 1;
  optional string name = 2 [default = "none"];
  repeated int32 packed = 3 [packed = true];
  optional group Part = 4 { optional int32 a = 5; }
}
"""
_KINDS = (
    "int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 float double "
    "bool string bytes E"
)
_KNOWN = (
    "Timestamp",
    "Duration",
    "FieldMask",
    "Struct",
    "Value",
    "ListValue",
    "Int64Value",
    "FloatValue",
    "BytesValue",
)
MANY = "\n".join(
    [
        'syntax = "proto3";',
        *(
            f'import "google/protobuf/{name}.proto";'
            for name in ("timestamp", "duration", "field_mask", "struct", "wrappers")
        ),
        "enum E { ZERO = 0; ONE = 1; MINUS = -1; }",
        "message Many {",
        *(f"{kind} a{n} = {n + 1};" for n, kind in enumerate(_KINDS.split())),
        *(f"optional {kind} o{n} = {n + 21};" for n, kind in enumerate(_KINDS.split())),
        *(f"repeated {kind} r{n} = {n + 41};" for n, kind in enumerate(_KINDS.split())),
        *(f"map<int32, {kind}> m{n} = {n + 61};" for n, kind in enumerate(_KINDS.split())),
        *(f"google.protobuf.{name} k{n} = {n + 81};" for n, name in enumerate(_KNOWN)),
        *(f"repeated google.protobuf.{name} l{n} = {n + 101};" for n, name in enumerate(_KNOWN)),
        "map<string, google.protobuf.Timestamp> at = 121; map<bool, Left> left = 122;",
        "oneof one { string x = 123; Right right = 124; } }",
        "message Left { Right right = 1; repeated Left left = 2; int32 a = 3; }",
        "message Right { Left left = 1; map<int64, Right> more = 2; bool b = 3; }",
    ]
)
"""Each type of a field, alone and in each way; messages within each other."""

EDITION = """
edition = "2023";
message Edition {
  int32 plain = 1;
  int32 zero = 2 [features.field_presence = IMPLICIT];
  repeated int32 apart = 3 [features.repeated_field_encoding = EXPANDED];
  Edition group = 4 [features.message_encoding = DELIMITED];
  string text = 5 [features.utf8_validation = NONE];
}
"""


def schema_of(text: str, *references: tuple[str, str]) -> Schema:
    return Schema(SchemaKind.PROTOBUF, text, references)


def written(text: str, value: object, message: tuple[int, ...] = (0,)) -> bytes:
    """The message that `value`, in the JSON of proto3, stands for."""
    return from_json(schema_of(text), message)(value)


def flights(depth: int = 2) -> st.SearchStrategy[dict[str, Any]]:
    """Flights in the JSON of proto3, in which any field may be absent."""
    int64 = st.integers(-(2**63), 2**63 - 1)
    fields: dict[str, st.SearchStrategy[Any]] = {
        "id": int64,
        "carrier": TEXT,
        "delay": FLOATS,
        "at": st.just("2013-01-31T05:00:00.123Z"),
        "stops": st.lists(TEXT, max_size=3),
        "seats": st.dictionaries(TEXT, int64, max_size=3),
        "kind": st.sampled_from(["DAY", "NIGHT"]),
        "raw": st.just("AP8="),
        "gate": int64,
        "small": st.integers(-(2**31), 2**31 - 1),
        "fixed": st.integers(0, 2**32 - 1),
        "ok": st.booleans(),
        "numbers": st.lists(FLOATS, max_size=3),
    }
    if depth:
        fields["next"] = flights(depth - 1)
    places: st.SearchStrategy[dict[str, Any]] = st.one_of(
        st.just({}), st.builds(dict, airport=TEXT), st.builds(dict, zone=int64)
    )
    return st.builds(
        lambda found, place: {**found, **place}, st.fixed_dictionaries({}, optional=fields), places
    )
