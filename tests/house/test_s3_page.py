"""docs/s3.md, from its first block to its last, as one script at a real S3 server and at ports of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.test_docs import code_blocks
from tests.kit.support import ROOT, WAIT_S, S3Server, free_port

PAGE = (ROOT / "docs" / "s3.md").read_text()
START = "set -e\ntrap 'kill $(jobs -p) 2> /dev/null' EXIT\n"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl: the page makes certificates with it")
def test_the_page_leads_to_two_gateways_of_which_one_may_die(s3: S3Server, tmp_path: Path) -> None:
    (s3.directory / "events").mkdir()
    there = {
        "http://127.0.0.1:9000": s3.endpoint,
        "AWS_ACCESS_KEY_ID=lakelog": f"AWS_ACCESS_KEY_ID={s3.access_key}",
        "AWS_SECRET_ACCESS_KEY=lakelog-secret": f"AWS_SECRET_ACCESS_KEY={s3.secret_key}",
        "8443": str(free_port()),
        "8444": str(free_port()),
    }
    script = START + "".join(code_blocks(PAGE, "sh"))
    for named, real in there.items():
        assert named in script
        script = script.replace(named, real)
    program = tmp_path / "lakelog"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lakelog "$@"\n')
    program.chmod(0o755)
    others = {name: text for name, text in os.environ.items() if not name.startswith(("AWS_", "LAKELOG_"))}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**others, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "PASS: s3://events/lakelog can hold a log" in done.stdout
    assert done.stdout.splitlines()[-3:] == ["orders", "     2", "(1 row)"]
