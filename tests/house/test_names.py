"""The words in names of modules and classes: terms of the field, or of the glossary in ARCHITECTURE.md."""

import ast
import re
from collections import defaultdict

from tests.kit.support import ROOT

MAP = (ROOT / "ARCHITECTURE.md").read_text()
SOURCES = sorted(source for marker in ROOT.glob("*/py.typed") for source in marker.parent.rglob("*.py"))
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
GLOSSARY_WORDS_MAX = 40

KAFKA = """
    access accumulator acks acl append assign assignment batch broker cleaner client cluster commit
    compact compaction compression config consume consumer coordinator epoch expire fetch fetched follower
    generation group header heartbeat id join key lag leader leadership leave left listener log loss lost
    mapping member membership metadata offset operation ops partition partitioner peer permission
    pipeline spec
    poll position principal produce produced producer progress quota range record replica reset
    retention retriable retry router rule scram seek segment sender sequence snapshot stale sticky
    subscribe subscription super tail throttle tier tiering timestamp tombstone topic transact
    transaction
    unsubscribe varint
    classic fenced inconsistent instance max rebalance
"""
KAFKA_MESSAGES = """
    aborted alter alterable authenticate creatable create cursor deletable describable describe described dir
    end feature fetchable finalized find forgotten identity incremental init kafka nullable ongoing
    reassignment sasl supported sync synonym tagged
"""
"""The words of Kafka's messages, which no other name should need."""
DELTA = """
    add checkpoint column data delta digest file foreign info invariant path protocol remove rewrite
    row schema size stat store table txn vacuum version
"""
SPARK = """
    driver engine inference job limit merge option plan planned pyspark query reader scan shuffle sink source
    spark spread sql stage state statement stream system task view worker writer
"""
ARROW = """
    array arrow binary block buffer byte child children csv decimal field fragment frame pandas
    parquet struct text type typed
"""
HTTP = """
    actor api app audit authentication authenticator authorization authorized authorizer basic
    bearer body browser
    certificate condition connection credential endpoint envelope error forward gateway guard handler
    handshake head health host html http iam json jwks jwt media message method middleware multipart oidc
    origin
    cipher claim coding console content csrf login loopback
    page password policy product rate readiness redirect refused request requirement resource response route
    routed secret security server session socket span target tls trace tracer url user verifier wire
"""
PYTHON = """
    action admin async background allowance alteration argument backoff bench bound boundary bucket cache call
    callback change choice cli clock code collection command conflict context copy count crash delete
    delivery demo description dispatch entry event exit export failure fault filter flow format fsck handle
    hash housekeeping infer inspection interpreter interrupt item java jre kind lakelog layout line link list
    load local location loop maintain maintenance manager metrics mismatch move name node object offload
    out outcome package parser pattern posix process publish put queue ratio read refresh repeat replay report
    restart result rewind run runner sequencer serialize serializer serve setting slice start step summary
    curve history index overview paging problem sample series sum
    test testing tick time timeout token v value wait wrapper write
    codec decoder encoder formatter inflate notation pointer primitive
"""
PLAIN = """
    ahead already and answer answered appended appending applied assigned at changed cleaning clocked
    closing committed common corrupt created damaged decoded deleted denied done dropped durable empty encoded
    exist failed faulty finished first found full gap given gone ends handed holding in invalid joined
    kept keyed large last listed long malformed manual many missing mixed new not noted of outgoing
    pending periodic placed prefixed processed published queued reached received remote replaced
    reported required reserved reused seen sent sequenced shared staged strict subscribed taken throttled to
    too unavailable
    undelivered unknown unreachable unreadable unsupported up verified waiting watched with without
"""
"""Adjectives, participles and prepositions, which say which one of the things named by a noun is meant."""

FIELD = {
    word
    for words in (KAFKA, KAFKA_MESSAGES, DELTA, SPARK, ARROW, HTTP, PYTHON, PLAIN)
    for word in words.split()
}


def words_of_names() -> dict[str, set[str]]:
    """Each word of a module's, package's or class's name, with the names that have it."""
    found: dict[str, set[str]] = defaultdict(set)
    for source in SOURCES:
        own = source.parent.name if source.stem.startswith("__") else source.stem
        nodes = ast.walk(ast.parse(source.read_text()))
        classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
        for name in [own, *classes]:
            for word in WORD.findall(name):
                found[word.lower()].add(name)
    return found


def singulars(word: str) -> set[str]:
    """`word`, and what it may be the plural of."""
    return {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}


def glossary() -> list[str]:
    """The words that ARCHITECTURE.md explains."""
    _, table = MAP[MAP.index("\n## Glossary") :].split("| --- | --- |")
    return re.findall(r"^\| ([a-z]+) \| ", table, re.MULTILINE)


def test_every_word_of_a_name_is_a_term_of_the_field_or_in_the_glossary() -> None:
    known = FIELD | set(glossary())
    unknown = {word: sorted(n) for word, n in words_of_names().items() if not singulars(word) & known}
    listing = "\n".join(f"{word}: {', '.join(names)}" for word, names in sorted(unknown.items()))
    assert not unknown, f"take a term of the field, or explain the word in ARCHITECTURE.md:\n{listing}"


def test_the_glossary_is_short_sorted_and_explains_only_words_of_names() -> None:
    words = glossary()
    assert words == sorted(set(words))
    assert len(words) <= GLOSSARY_WORDS_MAX
    assert set(words) & FIELD == set()
    used = set().union(*(singulars(word) for word in words_of_names()))
    assert set(words) - used == set()


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
