"""Subjects of certificates as users: the examples of KIP-371, and what does not work."""

import pytest

from coordinator.access.authentication.certificate import SUBJECT_MAX_CHARS, PrincipalMappingRules
from log_tables.errors import InvalidConfig

KIP_371 = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("OU=JavaSoft,O=Sun Microsystems,CN=duke.1", "DUKE.1"),
        ("OU=JavaSoft,O=Sun Microsystems", "OU=JavaSoft,O=Sun Microsystems"),
    ],
)
def test_the_rules_of_kip_371(subject: str, name: str) -> None:
    assert PrincipalMappingRules(KIP_371).user(subject) == name


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=ann", "CN=ann"),
        (" DEFAULT , ", "CN=ann", "CN=ann"),
        ("", "CN=ann", None),
        ("RULE:CN=(.*)/$1/", "CN=ann", "ann"),
        ("RULE:CN=(.*)/$1/", "O=x,CN=ann", None),
        ("RULE:CN=(.*)/$1/", "CN=ann,O=x", "ann,O=x"),
        ("RULE:CN=(.*)/$1/", "CN=", None),
        ("RULE:CN=(.*)//,DEFAULT", "CN=ann", None),
        (r"RULE:CN=(.*)\/(\w+),.*/$2\/$1\$1\\$0/", "CN=a/b,O=x", "b/a$1\\CN=a/b,O=x"),
        ("RULE:CN=(.*),O=.{1,9}/$1/", "CN=a,b,O=x", "a,b"),
        ("RULE:CN=(.*)|O=(.*)/$1$2/", "O=x", "x"),
        ("RULE:.*/*/,DEFAULT", "CN=ann", None),
        ("RULE:.*/admin/", "CN=ann", "admin"),
        ("RULE:CN=(.*)/$12/", "CN=ann", "ann2"),
        ("RULE:(.*)/$1/", "CN=Zo\u00eb", "CN=Zo\u00eb"),
        ("RULE:(.*)/$1/", "CN=a\nb", None),
        ("RULE:(.*)/$1/", "CN=\ud800", None),
        ("RULE:(.*)/$1/", "C" * (SUBJECT_MAX_CHARS + 1), None),
    ],
)
def test_the_first_rule_that_matches_is_taken(rules: str, subject: str, name: str | None) -> None:
    assert PrincipalMappingRules(rules).user(subject) == name


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("RULE:CN=(.*)/$1", "'RULE:CN=(.*)/$1' is no rule; write RULE:pattern/replacement/"),
        ("DEFAULT,RULE:a/b/c", "'RULE:a/b/c' is no rule"),
        ("default", "'default' is no rule"),
        ("DEFAULT DEFAULT", "'DEFAULT DEFAULT' is no rule"),
        (",DEFAULT", "',DEFAULT' is no rule"),
        ("RULE:CN=(.*/$1/", "RULE:CN=(.*/$1/ does not work (missing )"),
        ("RULE:a)|(b/x/", "does not work"),
        ("RULE:CN=(.*)/$2/", "does not work (Rewrite schema requests 2 matches"),
        ("RULE:(?=CN)(.*)/$1/", "does not work (invalid perl operator: (?=)"),
        ("RULE:\ud800/x/", "does not work"),
    ],
)
def test_a_rule_that_does_not_work_is_refused(rules: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        PrincipalMappingRules(rules)
    assert said in str(refused.value)


def test_no_subject_takes_long() -> None:
    rules = PrincipalMappingRules("RULE:(a+)+(.*a)*b/$1/")
    assert rules.user("a" * SUBJECT_MAX_CHARS) is None
