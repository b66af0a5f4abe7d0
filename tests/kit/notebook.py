"""The notebook of docs/, run from its first cell to its last: by a test, and to write it anew.

    python -m tests.kit.notebook

puts what its cells give now into the file.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.kit.gateway import running_gateway
from tests.kit.support import ROOT, WAIT_S

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def stored() -> NotebookNode:
    """The notebook as it lies in docs/."""
    return nbformat.reads(NOTEBOOK.read_text(), as_version=4)  # type: ignore[no-any-return, no-untyped-call]


def executed(directory: Path) -> NotebookNode:
    """The notebook with the outputs of a kernel in `directory`, next to a new gateway."""
    with running_gateway(directory / "root") as gateway:
        # Sockets of files, which no other user of the machine can reach.
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(directory / "kernel"))
        where = {"metadata": {"path": str(directory)}}
        client = NotebookClient(stored(), kernel, timeout=int(WAIT_S), resources=where)
        try:
            client.execute(env={**os.environ, "PYTHONPATH": str(ROOT), "LAKELOG_URL": gateway.url})
        finally:
            run_sync(kernel.shutdown_kernel)(now=True)  # the client ends only kernels that it has made
    for cell in client.nb.cells:
        cell.metadata.pop("execution", None)  # when it ran
    client.nb.metadata = stored().metadata
    return client.nb


def outputs(notebook: NotebookNode) -> Iterator[tuple[str, str]]:
    """Each output by its kind, with its text; a picture without what it shows, which fonts decide."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "data" not in output:
                yield output.output_type, output.text
            elif "image/png" in output.data:
                yield "image/png", ""
            else:
                yield "text/plain", output.data["text/plain"]


if __name__ == "__main__":
    with TemporaryDirectory() as directory:
        NOTEBOOK.write_text(nbformat.writes(executed(Path(directory))) + "\n")  # type: ignore[no-untyped-call]
