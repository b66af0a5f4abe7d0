"""Text of others, as a page shows it: nothing in it hides, turns the line around, or is run."""

import re

from markupsafe import Markup, escape

_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters but a tab and a line's end, those that turn text around, and those without a width. The
two joiners stay, by which scripts and emoji are written.
"""


def visible(text: str) -> Markup:
    """`text` with what cannot be seen escaped, in an element of its own, so that it is told from the same
    characters typed; and apart from the text around it, whatever its direction.
    """
    made, at = ["<bdi>"], 0
    for found in _HIDDEN.finditer(text):
        made += [escape(text[at : found.start()]), f'<span class="hid">{_name(found[0])}</span>']
        at = found.end()
    return Markup("".join([*made, escape(text[at:]), "</bdi>"]))  # noqa: S704 (each part is escaped)


def hidden_count(text: str) -> int:
    """How many characters of `text` cannot be seen."""
    return len(_HIDDEN.findall(text))


def one_line(text: str, most: int) -> str:
    """The first `most` characters of `text` without its line breaks."""
    short = " ".join(text[: most + 1].split())
    return short[:most]


def _name(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
