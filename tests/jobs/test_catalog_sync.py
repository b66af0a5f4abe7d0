"""A sync into Hive's metastore, Glue and Unity Catalog: each by its own protocol, with the same result."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.catalog.catalog import Catalog
from jobs.catalog.entry import TOPIC_ID, entry_of, made_entry
from jobs.catalog.glue import GlueCatalog
from jobs.catalog.hive import HiveCatalog
from jobs.catalog.plan import Act
from jobs.catalog.sync import CatalogSync
from jobs.catalog.unity import UnityCatalog
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import AccessDenied, InvalidArgument, Unreachable
from log_tables.layout import PROPERTY_CLUSTER, log_directory
from log_tables.record import delta_schema
from log_tables.store.store import open_store
from tests.kit.catalogs import UNITY_CLASSES, glue_server, hive_metastore, unity_server, unity_stand_in
from tests.kit.support import free_port

Opened = Callable[[str], Catalog]
"""A schema of the catalog, by its name."""


@pytest.fixture(scope="module", params=["hive", "glue", "unity stand-in", "unity"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    directory = tmp_path_factory.mktemp("catalog")
    match request.param:
        case "hive":
            with hive_metastore(directory) as url:
                yield lambda schema: HiveCatalog(url, schema)
        case "glue":
            with pytest.MonkeyPatch.context() as patch, glue_server() as url:
                for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                    patch.setenv(name, "test")
                patch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
                yield lambda schema: GlueCatalog(schema, url)
        case "unity stand-in":
            with unity_stand_in() as server:
                yield lambda schema: UnityCatalog(server.url, "unity", schema)
        case _ if not UNITY_CLASSES:
            pytest.skip("LAKELOG_UNITY_CATALOG names no classes of Unity Catalog's server")
        case _:
            with unity_server(directory / "server") as url:
                yield lambda schema: UnityCatalog(url, "unity", schema)


@pytest.fixture
def cluster(store_root: Path) -> Cluster:
    made = Cluster.open(open_store(str(store_root)))
    create_topic(made, "flights", 2, {"value.columns": "carrier string, price decimal(10,2)"})
    for name in ("shop.Orders-eu", "a", "b"):
        create_topic(made, name, 1)
    return made


@pytest.fixture
def catalog(opened: Opened) -> Catalog:
    return opened("s" + SystemClock().random_hex(8))


def synced(cluster: Cluster, catalog: Catalog) -> dict[str, Act]:
    """The steps of a run, by topic; none failed."""
    outcomes = [*CatalogSync(cluster, catalog, cluster.store.url).run()]
    assert [each.error for each in outcomes if each.act is not Act.SKIP and each.error] == []
    return {each.topic: each.act for each in outcomes}


def ids(catalog: Catalog) -> dict[str, str]:
    return {each.name: each.properties.get(TOPIC_ID, "") for each in catalog.tables()}


def test_topics_come_change_and_go(cluster: Cluster, catalog: Catalog) -> None:
    names = {"flights", "shop.Orders-eu", "a", "b"}
    assert synced(cluster, catalog) == dict.fromkeys(names, Act.CREATE)
    assert synced(cluster, catalog) == {}
    assert set(ids(catalog)) == {"flights", "shop____d____xorders___eu", "a", "b"}
    first = ids(catalog)["a"]

    delete_topic(cluster, "a")
    create_topic(cluster, "a", 3)
    delete_topic(cluster, "b")
    alter_topic(cluster, "flights", {"retention.ms": "604800000"})
    assert synced(cluster, catalog) == {"b": Act.DROP, "a": Act.REPLACE, "flights": Act.REPLACE}
    assert set(ids(catalog)) == {"flights", "shop____d____xorders___eu", "a"}
    assert ids(catalog)["a"] == cluster.topic("a").topic_id != first
    assert synced(cluster, catalog) == {}
    assert [*cluster.store.list(log_directory(cluster.topic("a").directory))]  # nothing of it is removed


def test_a_table_of_another_is_named_skipped_and_kept(cluster: Cluster, catalog: Catalog) -> None:
    theirs = made_entry("a", "id", "file:///elsewhere", delta_schema(True), "another", "1 partition")
    gone = made_entry("gone", "id", "file:///elsewhere2", delta_schema(True), "another", "1 partition")
    catalog.begin()
    for each in (theirs, gone):
        catalog.create(each)
    steps = synced(cluster, catalog)
    assert steps.pop("a") is Act.SKIP
    assert set(steps.values()) == {Act.CREATE}
    owners = {each.name: each.properties[PROPERTY_CLUSTER] for each in catalog.tables()}
    assert owners["a"] == owners["gone"] == "another"
    assert synced(cluster, catalog) == {"a": Act.SKIP}


def test_what_somebody_made_since_the_look_is_left_alone(cluster: Cluster, catalog: Catalog) -> None:
    synced(cluster, catalog)
    delete_topic(cluster, "b")
    run = CatalogSync(cluster, catalog, cluster.store.url).run()
    ours = entry_of(cluster, cluster.topic("a"), cluster.store.url)
    catalog.drop("b")
    catalog.create(made_entry("b", "id", "file:///else", delta_schema(True), "another", "1 partition"))
    assert [each.act for each in run] == [Act.SKIP] or ids(catalog)["b"] == "id"
    found = catalog.table("b")
    assert found is not None
    assert found.properties[PROPERTY_CLUSTER] == "another"
    assert catalog.table("nobody") is None
    assert ours.name in ids(catalog)


def test_a_topic_whose_table_is_lost_is_named_and_keeps_its_entry(cluster: Cluster, catalog: Catalog) -> None:
    synced(cluster, catalog)
    log = log_directory(cluster.topic("a").directory)
    for item in [*cluster.store.list(f"{log}/")]:
        cluster.store.delete(item.path)
    [outcome] = CatalogSync(Cluster.open(cluster.store), catalog, cluster.store.url).run()
    assert outcome.topic == "a"
    assert "lakelog root refold" in outcome.error
    assert "a" in ids(catalog)


def test_a_server_that_is_away_is_named() -> None:
    port = free_port()
    for catalog in (
        HiveCatalog(f"thrift://127.0.0.1:{port}", "s"),
        UnityCatalog(f"http://127.0.0.1:{port}", "c", "s"),
    ):
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
            catalog.tables()


def test_a_token_is_sent_and_a_wrong_one_is_said() -> None:
    with unity_stand_in("secret") as server:
        assert UnityCatalog(server.url, "unity", "s", "secret").tables() == []
        with pytest.raises(AccessDenied, match="--token-file"):
            UnityCatalog(server.url, "unity", "s", "wrong").tables()
        with pytest.raises(InvalidArgument, match="no catalog 'other'"):
            UnityCatalog(server.url, "other", "s", "secret").tables()
