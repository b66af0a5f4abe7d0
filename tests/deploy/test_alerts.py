"""The alerts: Prometheus' own tool reads them, each fires on what it is about and on nothing else, and the
runbook has each.
"""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kit.deployed import DEPLOY, tool
from tests.kit.support import ROOT

ALERTS = DEPLOY / "prometheus" / "alerts.yml"
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()

ON = 'instance="g:8082"'
UP = f'up{{job="lakelog",{ON}}}'
MAINTENANCE = 'job="lakelog-maintenance",instance="m:9090"'
SHORT, LONG = 120, 160
"""How many values a series has: one a minute for two hours, or one in ten minutes for longer than a day."""

Series = dict[str, str]
"""By its name and labels, the values of a series, one a minute, as promtool writes them."""

FIRES: dict[str, Series] = {
    "LakelogGatewayDown": {'up{job="lakelog",instance="h:8082"}': "0x120"},
    "LakelogNoGateway": {UP: "_x120"},
    "LakelogGatewayRestarts": {f'process_start_time_seconds{{job="lakelog",{ON}}}': "1+0x99 2 3 4 4x20"},
    "LakelogGatewaysDisagree": {
        f"lakelog_brokers{{{ON}}}": "2x120",
        'lakelog_brokers{instance="h"}': "1x120",
    },
    "LakelogDamage": {f'lakelog_request_errors_total{{error_code="50002",{ON}}}': "_x115 1x10"},
    "LakelogTransactionLost": {f"lakelog_transactions_lost_parts_total{{{ON}}}": "0x100 1x30"},
    "LakelogTransactionsWait": {
        f"lakelog_transactions_committed_total{{{ON}}}": "0+1x120",
        f"lakelog_transactions_applied_total{{{ON}}}": "0x120",
    },
    "LakelogTransactionOpen": {f"lakelog_open_transaction_age_seconds{{{ON}}}": "0+60x120"},
    "LakelogServerErrors": {f'lakelog_request_errors_total{{error_code="50301",{ON}}}': "0+60x120"},
    "LakelogRefusesLoad": {f'lakelog_request_errors_total{{error_code="42901",{ON}}}': "0+120x120"},
    "LakelogDiskFull": {f"lakelog_disk_full{{{ON}}}": "0x100 1x20"},
    "LakelogBufferFull": {
        f"lakelog_buffer_used_bytes{{{ON}}}": "95x120",
        f"lakelog_buffer_limit_bytes{{{ON}}}": "100x120",
    },
    "LakelogCommitsSlow": {
        f'lakelog_commit_seconds_bucket{{le="1",{ON}}}': "0x120",
        f'lakelog_commit_seconds_bucket{{le="5",{ON}}}': "0+60x120",
        f'lakelog_commit_seconds_bucket{{le="+Inf",{ON}}}': "0+60x120",
    },
    "LakelogCommitBudgetUsed": {
        f"lakelog_commit_budget_used_total{{{ON}}}": "0+60x120",
        f"lakelog_commit_budget_limit{{{ON}}}": "1x120",
    },
    "LakelogUnmergedSegments": {f'lakelog_unmerged_segments{{topic="t",{ON}}}': "0x60 4001x60"},
    "LakelogConnectionsFull": {
        f"lakelog_connections{{{ON}}}": "95x120",
        f"lakelog_connections_limit{{{ON}}}": "100x120",
    },
    "LakelogDutyFails": {f'lakelog_duty_failures_total{{duty="refresh",{ON}}}': "0+1x120"},
    "LakelogTopicTableStands": {f'lakelog_topic_table_lag_seconds{{topic="t",{ON}}}': "0+60x120"},
    "LakelogConsumerBehind": {
        f'lakelog_consumer_lag_seconds{{group="g",topic="t",partition="0",{ON}}}': "1000x120"
    },
    "LakelogMirrorStopped": {f'lakelog_mirror_topics{{mirror="m",state="stopped",{ON}}}': "0x100 1x20"},
    "LakelogMirrorWithoutProcess": {
        f'lakelog_mirror_processes{{mirror="m",{ON}}}': "1x100 0x20",
        f'lakelog_mirror_topics{{mirror="m",state="paused",{ON}}}': "0x120",
    },
    "LakelogMirrorTroubled": {f'lakelog_mirror_troubled_processes{{mirror="m",{ON}}}': "0x60 1x60"},
    "LakelogMirrorBehind": {
        f'lakelog_mirror_lag_seconds{{mirror="m",topic="t",partition="0",{ON}}}': "0+60x120"
    },
    "LakelogStandbyBehind": {f'lakelog_standby_lag_seconds{{standby="s",{ON}}}': "0+60x120"},
    "LakelogStandbyTroubled": {f'lakelog_standby_troubled_processes{{standby="s",{ON}}}': "0x60 1x60"},
    "LakelogStandbyWithoutProcess": {f'lakelog_standby_processes{{standby="s",{ON}}}': "1x100 0x20"},
    "LakelogLoginsFail": {f'lakelog_request_errors_total{{error_code="40101",{ON}}}': "0+120x120"},
    "LakelogAuditLost": {f'lakelog_audit_dropped_events_total{{reason="waiting",{ON}}}': "_x115 5x10"},
    "LakelogSchemasFail": {f'lakelog_schema_lookups_total{{outcome="failed",source="s",{ON}}}': "0+1x120"},
    "LakelogSchemaChanged": {f'lakelog_schema_changed_ids_total{{source="s",{ON}}}': "_x115 1x10"},
    "LakelogSegmentsGrow": {f'lakelog_segments{{topic="t",{ON}}}': "10000+1000x160"},
    "LakelogMaintenanceDown": {f"up{{{MAINTENANCE}}}": "0x120"},
    "LakelogMaintenanceFails": {
        f"lakelog_maintenance_last_success_timestamp_seconds{{{MAINTENANCE}}}": "0x120"
    },
}

QUIET: dict[str, Series] = {
    "a gateway is restarted once": {
        f'process_start_time_seconds{{job="lakelog",{ON}}}': "1x100 2x20",
        UP: "1x100 0 1x20",
    },
    "clients are wrong": {
        f'lakelog_request_errors_total{{error_code="{code}",{ON}}}': "0+600x120"
        for code in (40001, 40401, 40901)
    },
    "an old damage is gone": {f'lakelog_request_errors_total{{error_code="50002",{ON}}}': "7x120"},
    "there is no bound on commits": {
        f"lakelog_commit_budget_used_total{{{ON}}}": "0+600x120",
        f"lakelog_commit_budget_limit{{{ON}}}": "0x120",
    },
    "a few refusals, failures and slow commits": {
        f'lakelog_request_errors_total{{error_code="42901",{ON}}}': "0+30x120",
        f'lakelog_request_errors_total{{error_code="50301",{ON}}}': "0+6x120",
        f'lakelog_duty_failures_total{{duty="refresh",{ON}}}': "0x60 3x60",
        f'lakelog_commit_seconds_bucket{{le="0.1",{ON}}}': "0+6000x120",
        f'lakelog_commit_seconds_bucket{{le="+Inf",{ON}}}': "0+6001x120",
    },
    "groups, transactions and tables go on": {
        f'lakelog_consumer_lag_seconds{{group="g",topic="t",partition="0",{ON}}}': "600x120",
        f'lakelog_topic_table_lag_seconds{{topic="t",{ON}}}': "30x120",
        f"lakelog_transactions_committed_total{{{ON}}}": "0+100x120",
        f"lakelog_transactions_applied_total{{{ON}}}": "0+99x120",
        f"lakelog_open_transaction_age_seconds{{{ON}}}": "600x120",
    },
    "mirrors go on, or are paused": {
        f'lakelog_mirror_lag_seconds{{mirror="m",topic="t",partition="0",{ON}}}': "200x120",
        f'lakelog_mirror_topics{{mirror="m",state="stopped",{ON}}}': "0x120",
        f'lakelog_mirror_troubled_processes{{mirror="m",{ON}}}': "0x110 1x3 0x7",
        f'lakelog_mirror_processes{{mirror="m",{ON}}}': "2x110 0x1 2x9",
        f'lakelog_mirror_processes{{mirror="n",{ON}}}': "0x120",
        f'lakelog_mirror_topics{{mirror="n",state="paused",{ON}}}': "3x120",
    },
    "values name schemas that nobody knows": {
        f'lakelog_schema_lookups_total{{outcome="unknown",source="s",{ON}}}': "0+60x120",
        f'lakelog_schema_lookups_total{{outcome="failed",source="s",{ON}}}': "0x60 3x60",
        f'lakelog_schema_changed_ids_total{{source="s",{ON}}}': "0x120",
    },
    "a topic has as many segments as a day ago": {f'lakelog_segments{{topic="t",{ON}}}': "20000x160"},
    "merges keep up": {f'lakelog_unmerged_segments{{topic="t",{ON}}}': "0x60 3900x60"},
    "maintenance runs": {
        f"up{{{MAINTENANCE}}}": "1x120",
        f"lakelog_maintenance_last_success_timestamp_seconds{{{MAINTENANCE}}}": "0+60x120",
    },
}


def promtool(*words: str | Path) -> str:
    done = subprocess.run([tool("promtool"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def case(series: Series, alerts: list[str], steps: int, minutes: int) -> dict[str, object]:
    """A test case of promtool: with these series of a live gateway, exactly these alerts fire at the end."""
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts]
    whole = {UP: f"1x{steps}", **series}
    return {
        "interval": f"{minutes}m",
        "input_series": [{"series": name, "values": values} for name, values in whole.items()],
        "promql_expr_test": [{"expr": firing, "eval_time": f"{steps * minutes}m", "exp_samples": samples}],
    }


def check(directory: Path, expected: list[tuple[Series, list[str]]]) -> None:
    """Let promtool run these cases: those with a value a minute, and those with one in ten."""
    for steps, minutes in ((SHORT, 1), (LONG, 10)):
        cases = [
            case(series, alerts, steps, minutes)
            for series, alerts in expected
            if any(values.endswith(f"x{LONG}") for values in series.values()) == (steps == LONG)
        ]
        tests = {"rule_files": [str(ALERTS)], "evaluation_interval": f"{minutes}m", "tests": cases}
        (directory / f"{minutes}.test.yml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", *directory.glob("*.test.yml"))


def test_prometheus_takes_the_alerts_and_its_settings(tmp_path: Path) -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", ALERTS)
    for name in ("alerts.yml", "prometheus.yml"):
        (tmp_path / name).write_text((DEPLOY / "prometheus" / name).read_text())
    (tmp_path / "lakelog.key").write_text("id.secret")
    promtool("check", "config", tmp_path / "prometheus.yml")


def test_each_alert_fires_on_what_it_is_about_and_no_other_does(tmp_path: Path) -> None:
    assert FIRES.keys() == {rule["alert"] for rule in RULES}
    check(tmp_path, [(series, [alert]) for alert, series in FIRES.items()])


def test_what_is_no_trouble_raises_no_alert(tmp_path: Path) -> None:
    check(tmp_path, [(series, []) for series in QUIET.values()])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_where_to_read_on(rule: dict[str, dict[str, str]]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    page, anchor = rule["annotations"]["runbook"].split("#")
    assert (ROOT / page).exists()
    assert anchor == str(rule["alert"]).lower()
    assert rule["annotations"]["summary"]


def test_the_runbook_has_each_alert_and_no_other() -> None:
    assert re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE) == [rule["alert"] for rule in RULES]
    for text in re.split(r"^### ", RUNBOOK, flags=re.MULTILINE)[1:]:
        assert "**Means.**" in text, text
        assert "**Do.**" in text, text
