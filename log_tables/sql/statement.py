"""The text of a statement, before DataFusion plans it: its words, and that it writes nothing.

DataFusion's parser decides what is a table. The words here only bound which fields of JSON a statement can
name: there may be more of them than fields, and never less.
"""

import re

from log_tables.errors import InvalidArgument
from log_tables.limits import SQL_OPERATORS_MAX

_INTO = re.compile(r"\binto\b", re.IGNORECASE)
_QUOTED = re.compile(
    r"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'  # text with backslashes
    |'(?:[^']|'')*'|"(?:[^"]|"")*"  # text, and names
    |(?<![\w$])\$(?P<tag>\w*)\$.*?\$(?P=tag)\$  # text between dollars
    |--[^\n]*|/\*.*?\*/  # comments""",
    re.DOTALL | re.VERBOSE,
)
"""The parts of SQL in PostgreSQL's dialect that are no keywords: texts, quoted names, comments."""

_OPERATOR = re.compile(
    r"""\b(?:and|or|not|union|except|intersect|join|like|ilike|is|in|isnull|notnull|rlike|regexp|similar|collate
      |apply|at\s+time\s+zone)\b
    |::|[-+*/%&|^<>=~\#!]+
    |\bas\s*(?:materialized\s*)?\(  # a common table expression, which may read the one before
    |\]\s*\[|\.\s*\w*\s*(?=\.)  # a part of a part of a value""",
    re.IGNORECASE | re.VERBOSE,
)
"""The links of chains of terms, conditions, queries or tables. Lists of values or columns are no chains."""

_CLAUSE = re.compile(
    r"\bis\s+(?:not\s+)?distinct\s+from\b|(?P<begin>\bfrom\b)|(?P<comma>,)|(?P<open>[(\[{])|(?P<close>[)\]}])"
    r"|(?P<end>\b(?:select|where|group|having|window|qualify|order|limit|union|except|intersect)\b|;)",
    re.IGNORECASE,
)

_SHOW_TABLES = re.compile(r"\s*show\s+tables\s*;?\s*", re.IGNORECASE)
_DESCRIBED = re.compile(r'\s*(?:describe|desc)\s+([\w.]+|"[^"]+")\s*;?\s*', re.IGNORECASE)
_WORD = re.compile(r"(?<![\w$])[^\W\d][\w$]*(?![\w$]|\s*\()")
_PHRASE = re.compile(r"\b(?:group|order|partition)\s+by\b|\b(?:limit|offset)\s+\d+", re.IGNORECASE)
_NO_NAMES = (
    "and as between case distinct else end explain from in is like not null on or select then when where with"
)
_NEVER_NAMES = frozenset(_NO_NAMES.split())


def check_reads_only(sql: str) -> None:
    """Raise InvalidArgument for INTO, which would create a table; DataFusion overlooks it in places. And for
    a null character, which no name of a column in Arrow can have.
    """
    if "\0" in sql:
        raise InvalidArgument("the SQL has a null character; write chr(0) where it is part of a text")
    if _INTO.search(_QUOTED.sub(" ", sql)):
        raise InvalidArgument("the SQL writes INTO a table, and only queries are answered; leave it out")


def check_size(sql: str) -> None:
    """Raise InvalidArgument for more than SQL_OPERATORS_MAX operators: a plan is as deep as its chains."""
    plain = _QUOTED.sub(" ", sql)
    count = sum(1 for _ in _OPERATOR.finditer(plain)) + _cross_joins(plain)
    if count > SQL_OPERATORS_MAX:
        raise InvalidArgument(
            f"the SQL has {count} operators, {SQL_OPERATORS_MAX} are allowed; write a list as IN (…), or ask "
            "several queries"
        )


def _cross_joins(plain: str) -> int:
    """The commas between tables: those in a FROM, outside of the parentheses in it."""
    count, within = 0, [False]
    for match in _CLAUSE.finditer(plain):
        if match.lastgroup == "comma":
            count += within[-1]
        elif match.lastgroup == "open":
            within.append(False)
        elif match.lastgroup == "close":
            within = within[:-1] or [False]
        elif match.lastgroup is not None:
            within[-1] = match.lastgroup == "begin"
    return count


def is_show_tables(sql: str) -> bool:
    return _SHOW_TABLES.fullmatch(_QUOTED.sub(_kept, sql)) is not None


def describes_table(sql: str) -> bool:
    """Whether the statement is the DESCRIBE of a table, which shows all columns."""
    return _DESCRIBED.fullmatch(_QUOTED.sub(_kept, sql)) is not None


def words(sql: str) -> set[str]:
    """Every word of the statement that can be the name of a column, as it is written."""
    quoted = {
        match[0][1:-1].replace('""', '"') for match in _QUOTED.finditer(sql) if match[0].startswith('"')
    }
    plain = _PHRASE.sub(" ", _QUOTED.sub(" ", sql))
    return quoted | {word for word in _WORD.findall(plain) if word.lower() not in _NEVER_NAMES}


def _kept(match: re.Match[str]) -> str:
    """A comment as a space, and anything else as it is."""
    return " " if match[0].startswith(("--", "/*")) else match[0]
