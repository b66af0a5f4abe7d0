"""Opening the root of a cluster that somebody serves: when one may be made, and which one it has to be.

A root that is not there looks like a first start: a mount that is missing leaves an empty directory. So a
root is made where nobody said that it must exist, and never in a directory whose mount is missing.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidConfig, RootMissing, StoreUnavailable
from log_tables.layout import METADATA_DIRECTORY, log_directory
from log_tables.schemas.registry_client import RegistryAccess
from log_tables.store.store import Durability, Store, open_store, requests_are_paid

FSTAB = Path("/etc/fstab")
"""The mounts that a machine is to have, fstab(5)."""


def open_root(
    url: str,
    options: dict[str, str],
    clock: Clock,
    durability: Durability = "auto",
    must_exist: bool = False,
    cluster_id: str = "",
    mounts: Path = FSTAB,
    create: bool = True,
) -> Store:
    """The store of the root at `url`, in which a cluster may be begun if `create`, unless it `must_exist`.

    With a `cluster_id` it must exist, too, and `open_cluster` says whether it is the right one. `mounts`
    lists those that the machine is to have. Raises StoreUnavailable for a root that is not there and has to
    be, RootMissing for another that is not there, InvalidArgument, CorruptLog.
    """
    if must_exist or cluster_id:
        try:
            store = open_store(url, options, create=False, clock=clock, durability=durability)
        except RootMissing as error:
            raise StoreUnavailable(f"{error.message.partition(';')[0]}; {_advice(url)}") from None
        if not has_cluster(store):
            try:
                Cluster.open(store, clock, create=False)  # which says more of a log that was lost
            except RootMissing:
                said = f"there is no cluster at {url}: no metadata log"
                raise StoreUnavailable(f"{said}; {_advice(url)}") from None
        if create and requests_are_paid(url):
            return open_store(url, options, clock=clock)  # which shows that it has conditional puts
        return store
    if not create:
        return open_store(url, options, create=False, clock=clock, durability=durability)
    missing = _missing_mount(url, mounts)
    if missing is not None and not _is_there(url):
        raise StoreUnavailable(
            f"there is no cluster at {url}, and {missing} is not mounted, which {mounts} lists; mount it and "
            "start again"
        )
    return open_store(url, options, clock=clock, durability=durability)


def open_cluster(
    store: Store,
    clock: Clock,
    url: str = "",
    must_exist: bool = False,
    cluster_id: str = "",
    registries: Iterable[RegistryAccess] = (),
    create: bool = True,
) -> Cluster:
    """The cluster in a store of `open_root`. Raises InvalidConfig for another one than `cluster_id` names,
    RootMissing where there is none and none may be made.
    """
    begins = create and not (must_exist or cluster_id)
    cluster = Cluster.open(store, clock, url, create=begins, registries=registries)
    if cluster_id and cluster.cluster_id != cluster_id.lower():
        raise InvalidConfig(
            f"the root at {store.url.removeprefix('file://')} is that of cluster {cluster.cluster_id}, and "
            f"cluster_id names {cluster_id}; mount the right one, or correct `data` or cluster_id"
        )
    return cluster


def has_cluster(store: Store) -> bool:
    """Whether there is a metadata log. Raises StoreUnavailable."""
    return any(True for _ in store.list(log_directory(METADATA_DIRECTORY) + "/"))


def _advice(url: str) -> str:
    return (
        "mount it, or correct `data`; for a first start run `lakelog root create --data "
        f"{url}`, as must_exist is set"
    )


def _is_there(url: str) -> bool:
    try:
        return has_cluster(open_store(url, create=False))
    except RootMissing:
        return False


def _missing_mount(url: str, mounts: Path) -> str | None:
    """The directory at or above a local root that is to be a mount and is none now."""
    parts = urlsplit(url)
    if "://" in url and parts.scheme != "file":
        return None
    root = Path(unquote(parts.path) if "://" in url else url).absolute()
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return None
    fields = [line.split() for line in lines if not line.lstrip().startswith("#")]
    listed = {each[1].replace("\\040", " ") for each in fields if len(each) > 1}
    above = [root, *root.parents]
    return next((str(each) for each in above if str(each) in listed and not os.path.ismount(each)), None)
