"""The commands of docs/monitoring.md, against a broker."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkapy.testing import Broker
from kafkapy.tools.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def run(servers: str, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--bootstrap-server", servers])


def test_the_commands_of_the_page_work(servers: str) -> None:
    said = {}
    for line in COMMANDS:
        program, *words = shlex.split(line)
        if program == "kafkapy":
            done = run(servers, *words)
            assert done.exit_code == 0, (line, done.output)
            said[line] = done.output
        elif shutil.which(program):
            assert program == "promtool"
            subprocess.run([program, *words], cwd=ROOT, check=True, timeout=120, capture_output=True)
    assert {"all", "orders"} <= set(said["kafkapy client-metrics list"].split())
    assert "client_id=orders.*" in said["kafkapy client-metrics describe --name orders"]
    left = run(servers, "client-metrics", "list", "--json")
    assert '"orders"' not in left.output and '"all"' in left.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("alter", "--metrics", "*"), "Give --name or --generate-name."),
        (("alter", "--name", "x", "--generate-name"), "Give --name or --generate-name."),
        (("alter", "--name", "x"), "Give --metrics, --interval or --match."),
        (("alter", "--name", "x", "--interval", "5"), "interval must be between 100 and 3600000"),
        (("alter", "--name", "x", "--match", "nope=5"), "Illegal client matching pattern: nope=5"),
        (("describe", "--name", "unknown"), "There is no subscription unknown;"),
        (("delete", "--name", "unknown"), "There is no subscription unknown;"),
    ],
)
def test_bad_input_is_one_sentence(servers: str, words: tuple[str, ...], sentence: str) -> None:
    done = run(servers, "client-metrics", *words)
    assert done.exit_code in (1, 2)
    assert sentence in " ".join(done.output.split())


def test_a_name_can_be_made_and_keys_go_back_to_their_defaults(servers: str) -> None:
    made = run(servers, "client-metrics", "alter", "--generate-name", "--metrics", "a.", "--interval", "500")
    (name,) = re.findall(r"Subscription (\S+): metrics, interval.ms changed", made.output)
    run(servers, "client-metrics", "alter", "--name", name, "--interval", "")
    described = run(servers, "client-metrics", "describe", "--name", name, "--json").output
    assert '"metrics": "a."' in described and "500" not in described
    assert run(servers, "client-metrics", "delete", "--name", name).exit_code == 0
