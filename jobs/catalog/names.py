"""The name that a topic's table has in a catalog: lower-case letters, digits and underscores, which every
catalog takes without quotes. No two topics have one name, and a name says whose it is.
"""

from log_tables.errors import InvalidArgument

_MARKS = "_.-"
"""The characters that runs of one, two and three underscores stand for."""

_ESCAPE = "_" * (len(_MARKS) + 1)
"""Stands before one letter: `x` and a letter for its capital, or that of a mark beside another mark."""

_CAPITAL = "x"
_LETTERS = {"_": "u", ".": "d", "-": "h"}
_OF_LETTER = {letter: mark for mark, letter in _LETTERS.items()}


def table_name(topic: str) -> str:
    """The name of the table over `topic`: `shop.orders-eu` is `shop__orders___eu`, `Orders` is
    `____xorders`.
    """
    made = []
    for index, char in enumerate(topic):
        after = topic[index + 1 : index + 2]
        if char.isupper():
            made.append(f"{_ESCAPE}{_CAPITAL}{char.lower()}")
        elif char in _LETTERS and (after in _LETTERS or after.isupper()):
            made.append(_ESCAPE + _LETTERS[char])  # a run of its own would join the underscores that follow
        elif char in _LETTERS:
            made.append("_" * (_MARKS.index(char) + 1))
        else:
            made.append(char)
    return "".join(made)


def topic_name(table: str) -> str:
    """The topic whose table is called `table`. Raises InvalidArgument for a name that `table_name` does not
    make.
    """
    made, rest = [], table
    while rest:
        bare = rest.lstrip("_")
        run = min(len(rest) - len(bare), len(_ESCAPE))
        if run == len(_ESCAPE):
            letter, rest = rest[run : run + 1], rest[run + 1 :]
            if letter == _CAPITAL:
                letter, rest = rest[:1].upper(), rest[1:]
            made.append(_OF_LETTER.get(letter, letter))
        elif run:
            made.append(_MARKS[run - 1])
            rest = bare
        else:
            made.append(rest[0])
            rest = rest[1:]
    topic = "".join(made)
    if table_name(topic) != table:
        raise InvalidArgument(
            f"{table!r} is no name of a topic's table; `lakelog topic list` lists the topics"
        )
    return topic
