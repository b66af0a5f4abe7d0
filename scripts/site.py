"""Make a site of the Markdown pages: `make site` runs it with the Python of .tools/site.

    scripts/site.py [FOLDER]

FOLDER is the site, by default build/site/html. It has a folder for each version, of which this run makes that
of this tree and leaves the others alone, and the list of them that the pages offer.

The pages are copied as they lie here, so their links hold. What a site has besides is made on the way: SVG of
each diagram, a page of the notebook, an index of each folder that a page links to, and a page with the
docstrings of the Python API. It ends with an error if a link leads nowhere, or if a page would load something
from another host.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
PAGES, HTML = ROOT / "build" / "site" / "pages", ROOT / "build" / "site" / "html"
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)\)")
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)"
)
THEMES = {"default": "light", "dark": "dark"}
LANGUAGES = {".json": "json", ".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
SPARK = ("session.session", "sql.views.topics", "data_source.register")
ENVIRONMENT = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
CALLS = """\
The methods of a `Client` are these, and return what stands in `Call[…]`. Those of an `AsyncClient` are
awaited."""


TO_THE_NEWEST = """\
<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={newest}/">
<title>lakelog</title>
<a href="{newest}/">lakelog {newest}</a>
"""


def main(folder: str = str(HTML)) -> None:
    """Fill the folder of pages, and let MkDocs make this version of the site of it."""
    site = Path(folder).resolve()
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    shutil.rmtree(PAGES, ignore_errors=True)
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    linked = {folder for page in pages for folder in folders(page)}
    for page in pages:
        write(page.relative_to(ROOT), site_page(page))
    for place in linked:
        write(place.relative_to(ROOT) / "index.md", index(place))
    write(Path("docs") / "python.md", reference())
    write(Path("docs") / "notebook.md", notebook_page(PAGES / "docs"))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site / version)]
    built = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, check=False)
    if built.returncode:  # with --quiet it would count no warning
        sys.exit(built.stderr)
    if others := sorted(foreign(site / version)):
        sys.exit("the site would load from other hosts:\n" + "\n".join(others))
    there = list_versions(site)
    shown = os.path.relpath(site)
    print(f"{len(list((site / version).rglob('*.html')))} pages of {version} are in {shown}/{version}")
    print(f"The site has {', '.join(there)}; to read it:")
    print(f"python3 -m http.server --bind 127.0.0.1 --directory {shown}")


def list_versions(site: Path) -> list[str]:
    """The versions that a site has, the newest first; written down where its pages look for them, and with a
    first page that leads to the newest.

    Material for MkDocs reads the list as `mike` writes it.
    """
    there = sorted((path.name for path in site.iterdir() if is_version(path)), key=Version, reverse=True)
    listed = [
        {"version": name, "title": name, "aliases": ["latest"][index:]} for index, name in enumerate(there)
    ]
    (site / "versions.json").write_text(json.dumps(listed, indent=2) + "\n")
    (site / "index.html").write_text(TO_THE_NEWEST.format(newest=there[0]))
    return there


def is_version(path: Path) -> bool:
    """Whether a folder is one of a version."""
    try:
        Version(path.name)
    except InvalidVersion:
        return False
    return path.is_dir()


def write(path: Path, text: str) -> None:
    """Have `text` as the file `path` of the site."""
    place = PAGES / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def folders(page: Path) -> Iterator[Path]:
    """The folders that a page links to."""
    for target in LINK.findall(page.read_text()):
        path = (page.parent / target).resolve()
        if path.is_dir():
            yield path


def site_page(page: Path) -> str:
    """The text of a page, with links to what the site has instead of folders and diagrams."""
    text = LINK.sub(lambda link: site_link(page, link), page.read_text())
    return DIAGRAM.sub(lambda found: picture(page, text[: found.start()], found[1]), text)


def site_link(page: Path, link: re.Match[str]) -> str:
    """A folder's index for the folder; a file that is no page comes to the site."""
    path = (page.parent / link[1]).resolve()
    if path.is_dir():
        return f"]({link[1].rstrip('/')}/index.md)"
    if path.suffix != ".md":
        place = PAGES / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    return link[0]


def picture(page: Path, before: str, source: str) -> str:
    """Images of a diagram for light and dark pages, named after the heading above it."""
    import mermaidx  # of .tools/site alone

    title = HEADING.findall(before)[-1]
    name = f"{page.stem}-{re.sub('[^a-z]+', '-', title.lower())}"
    images = []
    for theme, scheme in THEMES.items():
        drawn = mermaidx.render(source, theme=theme).svg()
        write(page.parent.relative_to(ROOT) / f"{name}-{scheme}.svg", drawn)
        images.append(f"![{title}]({name}-{scheme}.svg#only-{scheme})")
    return "\n".join(images)


def notebook_page(place: Path) -> str:
    """The cells of the notebook as a page, with what they gave; its pictures, and itself, come to `place`."""
    parts: list[str] = []
    shutil.copy(NOTEBOOK, place)
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{NOTEBOOK.stem}-{len(parts)}.png"
                (place / name).write_bytes(b64decode("".join(data["image/png"])))
                parts.append(f"![A plot of the rows above]({name})")
            else:
                text = "".join(data.get("text/plain", output.get("text", "")))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join([*parts, f"[{NOTEBOOK.name}]({NOTEBOOK.name}) is this page, to run."]) + "\n"


def index(folder: Path) -> str:
    """A page with all files of a folder: a link to each page, and each program as it is."""
    lines = [f"# {folder.relative_to(ROOT)}", ""]
    for path in sorted(
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ):
        name = path.relative_to(folder)
        if path.suffix == ".md":
            lines.append(f"- [{HEADING.findall(path.read_text())[0]}]({name})")
        else:
            lines += [
                "",
                f"## {name}",
                "",
                f"``````{LANGUAGES.get(path.suffix, 'text')}",
                path.read_text(),
                "``````",
            ]
    return "\n".join(lines)


def reference() -> str:
    """The page of the Python API: what `lakelog` and `lakelog.spark` give, in groups."""
    names = public(ROOT / "lakelog" / "__init__.py")
    errors = public(ROOT / "log_tables" / "errors.py", of_classes=True)
    programs = [f"lakelog.{name}" for name in names if name not in errors]
    parts = [
        "# The Python API",
        *("## Programs", *map(documented, programs)),
        *("## Requests of a client", CALLS, documented("lakelog.client.calls.Calls")),
        *("## Spark", *(documented(f"lakelog.spark.{name}") for name in SPARK)),
        *("## Errors", *(documented(f"lakelog.{name}") for name in names if name in errors)),
    ]
    return "\n\n".join(parts) + "\n"


def documented(name: str) -> str:
    """The place for the docstrings of `name`."""
    return f"::: {name}"


def public(module: Path, *, of_classes: bool = False) -> list[str]:
    """The names of `__all__` of a module, or of its classes, without importing it."""
    body = ast.parse(module.read_text()).body
    if of_classes:
        return [node.name for node in body if isinstance(node, ast.ClassDef)]
    (names,) = (
        node.value
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return [name for name in ast.literal_eval(names) if not name.startswith("__")]


def foreign(site: Path) -> Iterator[str]:
    """Each thing that a page of `site` loads from another host, with the page."""
    for page in site.rglob("*.html"):
        for url in LOADED.findall(page.read_text()):
            yield f"{page.relative_to(site)}: {url}"


if __name__ == "__main__":
    main(*sys.argv[1:])
