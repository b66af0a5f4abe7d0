"""Long lists of JSON are decoded as others are, and hold the interpreter's lock for milliseconds only."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from api.wire.long_lists import LongListDecoder, LongListsDecoder, free
from log_tables.limits import MIB, REQUEST_RECORDS_MAX
from tests.kit.loop_holds import HELD_MAX_S, Hold, longest_call, shortest

COUNT = 3_000
"""Items: many enough that they are cut."""


class Item(msgspec.Struct, forbid_unknown_fields=True):
    value: msgspec.Raw = msgspec.Raw(b"")
    more: list[int] = []


class Body(msgspec.Struct, forbid_unknown_fields=True):
    items: list[Item] = []
    names: tuple[str, ...] = ()
    number: int = 0


def texts() -> Iterator[tuple[str, bytes]]:
    items = [b'{"value":%d,"more":[1]}' % number for number in range(COUNT)]
    names = b",".join(b'"a,]}\\"%d"' % number for number in range(COUNT))
    good = b'{"items":[%b]' % b",".join(items)
    yield "one list", good + b"}"
    yield "two lists", b'%b,"names":[%b],"number":7}' % (good, names)
    yield "a name with an escape and blanks", good.replace(b'"items":', b'"\\u0069tems" \n:\t') + b"}"
    yield "a list that is named again", good + b',"items":[{"value":1}]}'
    yield "a long list after a short one", good.replace(b'{"items"', b'{"items":[{"value":1}],"items"') + b"}"
    yield "values of other kinds", b'{"items":[%b]}' % b",".join([b'{"value":{"a":[1,{"b":2},"x"]}}'] * COUNT)
    yield "a large item", b'{"items":[%b,{"value":"%b"}]}' % (items[0], b"x" * 3 * MIB)
    wrong = [b'{"valeu":1}', b'{"value":}', b'{"value":1]', b"", b"1", b'{"more":["x"]}', b'{"value":"\x01"}']
    for place in (0, 1, 832, 833, 834, 835, COUNT - 2, COUNT - 1):
        for each in wrong:
            some = [*items]
            some[place] = each
            yield f"{each!r} at {place}", b'{"items":[%b],"number":1}' % b",".join(some)
    for end in (b"", b",", b",]", b',"x":1}', b"]}", b',"number":"x"}', b"} x", b"}}"):
        yield f"the end {end!r}", good + end
    yield "a comma at the end", good[:-1] + b",]}"
    yield "no name", b"{[%b]}" % b",".join(items)
    yield "no object", b"[%b]" % b",".join(items)


def result(decode: Callable[[bytes], Any], text: bytes) -> object:
    try:
        return decode(text)
    except msgspec.DecodeError as error:
        return type(error), str(error)


def test_objects_with_long_lists_are_decoded_as_others_are() -> None:
    decoder, plain = LongListsDecoder(Body), msgspec.json.Decoder(Body)
    different = [name for name, text in texts() if result(decoder.decode, text) != result(plain.decode, text)]
    assert different == []


def test_long_lists_are_decoded_as_others_are() -> None:
    decoder, plain = LongListDecoder[Item](Item), msgspec.json.Decoder(list[Item])
    for name, text in texts():
        alone = text.removeprefix(b'{"items":').removesuffix(b"}").removesuffix(b',"number":1')
        assert result(decoder.decode, alone) == result(plain.decode, alone), name


def test_a_list_that_nobody_needs_is_emptied() -> None:
    items = [object() for _ in range(COUNT)]
    free(items)
    assert items == []


def test_the_longest_lists_hold_the_lock_for_milliseconds() -> None:
    item = b'{"value":{"a":[1,{"b":2},"x"]},"more":[1]}'
    body = b'{"items":[%b]}' % b",".join([item] * REQUEST_RECORDS_MAX)
    decoder = LongListsDecoder(Body)

    def freed() -> Hold:
        items = decoder.decode(body).items
        return longest_call(lambda: free(items))

    for act in (lambda: longest_call(lambda: decoder.decode(body)), freed):
        seconds, what = shortest(act)
        assert seconds < HELD_MAX_S, what
