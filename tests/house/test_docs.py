"""The documents say what is: every route, code, setting and invariant, and the examples as they stand."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

import api.errors
from api.v2.consumer_schema import WITHOUT_EFFECT, NewConsumer
from ingest.commit_budget import REQUESTS_PER_COMMIT
from lakelog.spark.options import SOURCE_OPTIONS, STORAGE_PREFIX
from lakelog.spark.session import LISTS, session_config
from log_tables import errors
from log_tables.cluster.setting import WITHOUT_EFFECT as UNUSED_SETTINGS
from log_tables.cluster.topic_settings import SETTINGS
from log_tables.errors import LakelogError
from log_tables.record import timestamp_us
from log_tables.table import invariant
from log_tables.table.commit import Metadata, Protocol, decode, encode
from log_tables.table.invariant import kind_of
from log_tables.table.snapshot import Snapshot, segment_of
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.support import ROOT, free_port

DOCS = ROOT / "docs"
HTTP = (DOCS / "http.md").read_text()
FORMAT = (DOCS / "FORMAT.md").read_text()
OPERATING = (DOCS / "operating.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
MAP = (ROOT / "ARCHITECTURE.md").read_text()
SOURCES = sorted(source for marker in ROOT.glob("*/py.typed") for source in marker.parent.rglob("*.py"))
DAY_S = 24 * 60 * 60
METHODS = "GET|POST|PUT|PATCH|DELETE"


LEFTOVER = re.compile(
    r"^(@@ |<<<<<<<|=======$|>>>>>>> |\+\+\+ |--- [ab]/|diff --git )|^[^`|]* => [^`|]*$", re.MULTILINE
)
"""Marks of a patch, of a merge, and of an edit that names what it replaces, outside of code and tables."""

FROM_A_REGISTRY = re.compile(r"pip install '?\"?lakelog\b")
"""lakelog is in no registry of packages."""


def prose(text: str) -> str:
    """`text` without its blocks of code."""
    return re.sub(r"^```.*?^```$|^ {4}.*$", "", text, flags=re.MULTILINE | re.DOTALL)


def section(text: str, title: str) -> str:
    """The text between the heading `title` and the next heading of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert found is not None, f"there is no heading {title!r}"
    after = text[found.end() :]
    following = re.search(rf"^#{{1,{len(found[1])}}} ", after, re.MULTILINE)
    return after if following is None else after[: following.start()]


def rows(text: str) -> list[list[str]]:
    """The cells of every row of the tables in `text`, headings too."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of `page`, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_headings_that_exist(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        aim = (page.parent / target).resolve() if target else page
        assert anchor in anchors(aim), f"{page.name} links to {target}#{anchor}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def test_every_page_has_a_place_on_the_site() -> None:
    named = {
        ROOT / name for name in re.findall(r"- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    }
    assert set(PAGES) - named == {*(DOCS / "decisions").glob("*.md")}


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())
        for target in links:
            aim = (page.parent / target).resolve()
            left += sorted(aim.glob("*.md")) if aim.is_dir() else [aim]
    assert sorted(set(PAGES) - seen) == []


def test_every_route_is_documented_and_every_documented_route_is_there(gateway: RunningGateway) -> None:
    paths = gateway.client.get("/openapi.json").json()["paths"]
    there = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    documented = set(re.findall(rf"^### ((?:{METHODS}) \S+)$", HTTP, re.MULTILINE))
    assert documented == there


def test_every_query_parameter_and_header_of_a_route_is_documented(gateway: RunningGateway) -> None:
    for path, methods in gateway.client.get("/openapi.json").json()["paths"].items():
        for method, route in methods.items():
            about = section(HTTP, f"{method.upper()} {path}")
            for parameter in route.get("parameters", []):
                name = parameter["name"].title() if parameter["in"] == "header" else parameter["name"]
                shared = path == "/topics/{topic}/partitions/{partition}" and name == "acks"
                if parameter["in"] != "path" and not shared:
                    assert re.search(rf"[`?]{name}\b", about), f"{method} {path}: {name} is not documented"


def test_every_error_code_is_documented_with_its_status() -> None:
    documented = {
        int(cells[0]): int(cells[1]) for cells in rows(section(HTTP, "Errors")) if cells[0].isdecimal()
    }
    table = {code: status for status, code in api.errors.STATUS_AND_CODE.values()}
    assert documented == table | {405: 405}  # a path without that method: the framework's own


def test_every_property_of_a_consumer_is_documented_whether_it_has_an_effect_or_none() -> None:
    about = section(HTTP, "POST /consumers/{group}")
    named = [field.alias or name for name, field in NewConsumer.model_fields.items()]
    assert [name for name in [*named, *WITHOUT_EFFECT] if f"`{name}`" not in about] == []


def test_every_topic_setting_is_documented_with_its_default() -> None:
    documented = {
        cells[0].strip("`"): (cells[1].strip("`"), cells[3])
        for cells in rows(section(HTTP, "Topic settings"))
        if cells[0].startswith("`")
    }
    assert {name: default for name, (default, _) in documented.items()} == {
        setting.name: setting.default for setting in SETTINGS.values()
    }
    for setting in SETTINGS.values():
        assert all(f"`{choice}`" in section(HTTP, "Topic settings") for choice in setting.shown_choices)


def test_every_topic_setting_without_effect_is_documented() -> None:
    about = section((DOCS / "kafka.md").read_text(), "Settings without effect")
    documented = {cells[0].strip("`"): cells[1] for cells in rows(about) if cells[0].startswith("`")}
    assert documented.keys() == UNUSED_SETTINGS.keys()
    for name, values in documented.items():
        assert all(f"{choice}" in values for choice in UNUSED_SETTINGS[name].choices)


def test_every_option_of_the_spark_source_is_documented() -> None:
    documented = [
        cells[0].strip("`")
        for cells in rows(section((DOCS / "spark.md").read_text(), "Options"))
        if cells[0].startswith("`")
    ]
    assert sorted(documented) == sorted([*SOURCE_OPTIONS, f"{STORAGE_PREFIX}<name>"])


def test_every_setting_of_a_session_is_documented_with_its_value() -> None:
    documented = {
        cells[0].strip("`"): cells[1]
        for cells in rows(section((DOCS / "spark.md").read_text(), "Sessions, clusters, object stores"))
        if cells[0].startswith("`")
    }
    made = {name: value for name, value in session_config({}, {}).items() if name not in LISTS}
    assert documented == {**made, "spark.sql.catalog.spark_catalog": "Delta's"}


def chain_of(package: str) -> list[str]:
    """The layers of a package lowest first, each the names that stand side by side."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c.get("containers") == [package])
    return [*reversed(layers)]


def mapped() -> dict[str, list[str]]:
    """The files of every package, in the order of the map: those of a folder itself, and of its rooms."""
    text = section(MAP, "Rooms")
    found: dict[str, list[str]] = {}
    for folder in re.findall(r"^### (\w+)$", text, re.MULTILINE):
        for room, _, files in rows(section(text, folder)):
            package = ".".join([folder, *room.strip("`/").split("/")]).rstrip(".")
            found.setdefault(package, []).extend(re.findall(r"`(\w+)`", files))
    return found


def packages() -> list[str]:
    """Every package of ours that has files beside its `__init__.py`, but the one PySpark looks for."""
    folders = [marker.parent for marker in ROOT.glob("*/py.typed") if marker.parent.name != "pyspark_lakelog"]
    inits = [init for folder in folders for init in folder.rglob("__init__.py")]
    with_files = [init.parent for init in inits if list(init.parent.glob("[!_]*.py"))]
    return sorted(str(path.relative_to(ROOT)).replace("/", ".") for path in with_files)


@pytest.mark.parametrize("package", packages())
def test_the_map_has_every_file_of_every_room_and_none_before_those_it_knows(package: str) -> None:
    drawn = mapped()[package]
    there = [path.stem for path in (ROOT / package.replace(".", "/")).glob("[!_]*.py")]
    assert sorted(drawn) == sorted(there)
    layers = chain_of(package)
    places = {name: place for place, layer in enumerate(layers) for name in re.findall(r"\w+", layer)}
    assert [places[name] for name in drawn] == sorted(places[name] for name in drawn)


def test_every_invariant_is_documented_by_its_name() -> None:
    documented = {cells[0].strip("`") for cells in rows(section(FORMAT, "14. Invariants")) if "_" in cells[0]}
    predicates = {
        name
        for name, function in inspect.getmembers(invariant, inspect.isfunction)
        if function.__module__ == invariant.__name__
        and inspect.signature(function).return_annotation == invariant.Violation
        and not name.startswith(("_", "broken_", "first_"))
    }
    assert documented == predicates


def test_every_kind_of_error_is_in_the_tree_that_the_docstring_draws() -> None:
    def kinds(base: type[LakelogError]) -> set[str]:
        return {base.__name__}.union(*(kinds(kind) for kind in base.__subclasses__()))

    drawn = set(re.findall(r"[A-Z]\w+", errors.__doc__ or ""))
    assert {name for name in kinds(LakelogError) if hasattr(errors, name)} <= drawn


def commits() -> list[str]:
    """The commits that FORMAT.md shows, as the bytes of a file."""
    return [block for block in code_blocks(FORMAT, "json") if block.startswith('{"commitInfo"')]


@pytest.mark.parametrize(
    "text", commits(), ids=lambda text: json.loads(text.splitlines()[0])["commitInfo"]["operation"]
)
def test_the_commits_in_the_format_are_what_we_write(text: str) -> None:
    assert encode(decode(text.encode(), "docs/FORMAT.md")).decode() == text


def test_the_commits_in_the_format_keep_the_invariants() -> None:
    append, merge = (decode(text.encode(), "docs/FORMAT.md") for text in commits())
    empty = Snapshot(-1, Protocol(1, 2), Metadata("id", "{}"))
    assert invariant.broken_step(empty, append) is None
    assert kind_of(empty, append) is invariant.CommitKind.APPEND
    assert kind_of(empty, merge) is invariant.CommitKind.MAINTENANCE


def test_the_bounds_in_the_format_hold_the_record_that_they_are_about() -> None:
    add = decode(commits()[0].encode(), "docs/FORMAT.md").adds[0]
    late = timestamp_us("2013-01-01T10:00:00.000500Z")
    assert timestamp_us(segment_of(add).max_timestamp) >= late


EXAMPLE = re.compile(r"^```(sh|python)\n(.*?)^```(?:\n```(json|text)\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
"""Language and code of an example, kind and text of the answer that follows it, if one does."""


NAMED_URL, NAMED_LISTENER = "http://127.0.0.1:8082", "127.0.0.1:9092"


def runnable(language: str, code: str, url: str, listener: str) -> list[str]:
    """The command of an example, at another gateway than the one that it names."""
    code = code.replace(NAMED_URL, url).replace(NAMED_LISTENER, listener)
    if language == "python":
        return [sys.executable, "-c", code]
    lines = [line for line in code.splitlines() if not line.startswith(("make ", "lakelog serve"))]
    return ["sh", "-ec", "\n".join([f'lakelog() {{ "{sys.executable}" -m lakelog "$@"; }}', *lines])]


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: the examples use it")
@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/quickstart.md",
        "docs/consumers.md",
        "docs/backup.md",
        "docs/what-now.md",
        "docs/testing-programs.md",
    ],
)
def test_the_examples_of_a_page_run_and_answer_as_they_say(tmp_path: Path, page: str) -> None:
    listener = f"127.0.0.1:{free_port()}"
    with running_gateway(tmp_path / "lakelog-data", kafka_listener=listener) as gateway:
        for language, code, kind, answer in EXAMPLE.findall((ROOT / page).read_text()):
            command = runnable(language, code, gateway.url, listener)
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "LAKELOG_URL": gateway.url}
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{code}\n{done.stderr}"
            if kind == "json":
                assert json.loads(done.stdout) == json.loads(answer.replace(NAMED_URL, gateway.url)), code
            if kind == "text":
                assert done.stdout.split() == answer.split(), code


def test_the_table_of_what_commits_cost_is_right() -> None:
    """Each row follows the rules below the table; the price is S3's for 1,000 puts."""
    table = [row for row in rows(section(OPERATING, "What commits cost")) if row[0].isdecimal()]
    assert len(table) > 10
    for row in table:
        partitions, each = int(row[0]), int(row[1])
        puts = REQUESTS_PER_COMMIT * partitions * each
        dollars = puts * 30 * DAY_S / 1_000 * 0.005
        computed = [
            f"{1_000 / each / 2:g} ms",
            f"{partitions * each * DAY_S:,}",
            f"{puts:,}",
            f"{dollars:,.0f}",
        ]
        assert row[2:] == computed


def test_no_page_ends_in_the_leftovers_of_an_edit() -> None:
    found = {page.name: each[0] for page in PAGES if (each := LEFTOVER.search(prose(page.read_text())))}
    assert not found


def test_nothing_tells_to_install_lakelog_from_a_registry() -> None:
    sources = [*PAGES, *(path for room in ("api", "jobs", "lakelog") for path in (ROOT / room).rglob("*.py"))]
    found = [path.name for path in sources if FROM_A_REGISTRY.search(path.read_text())]
    assert not found


def test_the_map_names_files_classes_and_functions_that_exist() -> None:
    files = [str(source.relative_to(ROOT)) for source in SOURCES]
    modules: dict[str, str] = defaultdict(str)
    for source in SOURCES:
        modules[source.stem] += source.read_text()
    everything = "".join(modules.values())
    for name in re.findall(r"`([\w./]+)`", re.sub(r"^```.*?^```", "", MAP, flags=re.MULTILINE | re.DOTALL)):
        if name.endswith(".py"):
            assert any(f"/{file}".endswith(f"/{name}") for file in files), name
        elif (
            re.fullmatch(r"\w+\.\w+", name)
            and not (ROOT / name.split(".")[0]).is_dir()
            and "toml" not in name
        ):
            owner, member = name.split(".")
            text = modules.get(owner, everything)
            assert owner in modules or re.search(rf"^class {owner}\b", everything, re.MULTILINE), name
            assert re.search(rf"\b(?:def|class) {member}\b|^ *{member}\b *[:=]", text, re.MULTILINE), name
