"""The prompt of `lakelog sql` on a terminal: statements of several lines, their history, and completion."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

FIRST, NEXT = "lakelog> ", "     ... "
HISTORY_MAX = 1_000
"""Statements that are remembered."""

HELP = """\
A statement ends with a semicolon, and may have several lines.

  \\d            list topics and tables
  \\d NAME       list the columns of one
  .format NAME  print answers as table, csv, ndjson or json
  .help         this
  .quit         leave, as Ctrl-D does; Ctrl-C drops a statement, or stops its answer
"""

_KEYWORDS = re.findall(
    r"\w+",
    """SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET JOIN LEFT USING ON AS AND OR NOT NULL IS IN
    BETWEEN LIKE DISTINCT CASE WHEN THEN ELSE END WITH UNION ALL DESC ASC VALUES EXPLAIN ANALYZE DESCRIBE SHOW
    TABLES CAST COUNT SUM AVG MIN MAX""",
)
_COMMANDS = ("\\d", ".format", ".help", ".quit")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLOSED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_NAMES = re.compile(r'"(?P<quoted>[^"]+)"|(?P<plain>[A-Za-z_][A-Za-z0-9_]*)')


class Shell(NamedTuple):
    """The acts of a prompt: to answer SQL, to choose a format, to say what there is, to tell of an error."""

    answer: Callable[[str], None]
    set_format: Callable[[str], None]
    tables: Callable[[], Sequence[str]]
    columns: Callable[[str], Sequence[str]]
    failed: Callable[[Exception], None]


def run(shell: Shell) -> None:
    """Ask for statements and answer them, until the end of the input. Errors are told, and do not end it."""
    print("Ask in SQL, ended by a semicolon. \\d lists what there is, .help the commands.")
    lines: list[str] = []
    remember = _with_readline(shell, lines)
    while (statement := _statement(lines)) is not None:
        if statement:
            remember(statement)
        try:
            if statement in (".quit", ".exit", "\\q"):
                return
            _do(shell, statement)
        except KeyboardInterrupt:
            print("stopped")
        except Exception as error:  # noqa: BLE001 -- whatever it is, the next statement may be right
            shell.failed(error)


def _statement(lines: list[str]) -> str | None:
    """The next statement or command, without its semicolon; None at the end of the input.

    While it is read, `lines` has those that are there.
    """
    lines.clear()
    while True:
        try:
            lines.append(input(NEXT if lines else FIRST))
        except EOFError:
            print()
            return None
        except KeyboardInterrupt:
            print()
            return ""
        text = "\n".join(lines).strip()
        if not text or text[0] in ".\\":
            return text
        if is_whole(text):
            return text.removesuffix(";").strip()


def is_whole(text: str) -> bool:
    """Whether a semicolon ends it that is in no text, name or comment."""
    open_text = _CLOSED.sub(lambda closed: "x" if closed[0][0] in "'\"" else " ", text)
    return open_text.rstrip().endswith(";") and not re.search(r"['\"]|/\*", open_text)


def _do(shell: Shell, statement: str) -> None:
    match statement.split():
        case []:
            return
        case [".help" | "\\?" | "\\h"]:
            print(HELP, end="")
        case ["\\d" | "\\dt" | ".tables"]:
            shell.answer("SHOW TABLES")
        case ["\\d", name]:
            shell.answer(f"DESCRIBE {quoted(name)}")
        case [".format", name]:
            shell.set_format(name)
        case [first, *_] if first[0] in ".\\":
            print(f"there is no command {first}; .help lists them")
        case _:
            shell.answer(statement)


def quoted(name: str) -> str:
    """A name as SQL has it: in double quotes where it is no plain word."""
    return name if _PLAIN.fullmatch(name) or name.startswith('"') else '"' + name.replace('"', '""') + '"'


def candidates(shell: Shell, word: str, line: str) -> list[str]:
    """The words that `word`, the last of `line`, may become: a table, one of its columns, a keyword."""
    if line.startswith((".", "\\")) and " " not in line:
        return [each for each in _COMMANDS if each.startswith(line)]
    begin, tables = word.lstrip('"'), shell.tables()
    named = {found["quoted"] or found["plain"] for found in _NAMES.finditer(line)} & {*tables}
    columns = (
        [] if line.startswith("\\d") else [each for name in sorted(named) for each in shell.columns(name)]
    )
    names = [quoted(each) for each in dict.fromkeys([*columns, *tables]) if each.startswith(begin)]
    upper = [each for each in _KEYWORDS if begin and each.startswith(begin.upper())]
    keywords = [each if begin[:1].isupper() else each.lower() for each in upper]
    return names if word.startswith('"') or line.startswith("\\") else [*names, *keywords]


def _with_readline(shell: Shell, lines: Sequence[str]) -> Callable[[str], None]:
    """Give `input` editing, completion and the history of earlier sessions; a function that adds to it.

    `lines` are those of the statement before the one that is written.

    Without the module readline, as in some builds of Python, there is none of it.
    """
    try:
        import readline
    except ImportError:
        return lambda _: None
    found: list[str] = []

    def complete(word: str, number: int) -> str | None:
        if number == 0:
            line = readline.get_line_buffer()[: readline.get_endidx()]
            found[:] = candidates(shell, word, "\n".join([*lines, line]))
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,()=<>*+/;")
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    readline.set_auto_history(False)
    file = _history_file()
    with suppress(OSError):
        readline.read_history_file(file)

    def remember(statement: str) -> None:
        line = " ".join(statement.splitlines()) if "--" not in statement else statement
        readline.add_history(line if line[0] in ".\\" else f"{line};")
        readline.set_history_length(HISTORY_MAX)
        with suppress(OSError):  # a home that cannot be written to has no history
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            readline.write_history_file(file)

    return remember


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "lakelog" / "sql_history"
