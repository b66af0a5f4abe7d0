"""The long description of the package, which a registry shows: README.md, whose links into the repository are
text there, because a registry has no such files.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"\[([^]]+)\]\((?!https?:)[^)]+\)")


class LongDescription(MetadataHookInterface):
    """Hatchling finds it by pyproject.toml."""

    def update(self, metadata: dict[str, object]) -> None:
        """Give `metadata` its readme."""
        text = (Path(self.root) / "README.md").read_text()
        metadata["readme"] = {"content-type": "text/markdown", "text": LINK.sub(r"\1", text)}
