"""kafkapy storage: a formatted directory has the id that the cluster then has, and mistakes change nothing."""

from __future__ import annotations

import json
from pathlib import Path

import click.testing
import pytest

from kafkapy.admin import KafkaAdminClient
from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.tools.cli import main
from kafkapy.types import uuid_from_string

OTHER = "WNzc7e3mQT2qdN0vVIYyZg"


def run(*arguments: object) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["storage", *map(str, arguments)])


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 1, (result.output, result.exception)
    return " ".join(result.stderr.split())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "server.properties"
    made.write_text(
        f"broker.id=5\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'one'},{tmp_path / 'two'}\n"
        "offsets.topic.replication.factor=1\n"
    )
    return made


def test_the_cluster_has_the_id_of_its_formatted_directories(file: Path) -> None:
    cluster = run("random-uuid").stdout.strip()
    uuid_from_string(cluster)
    assert run("info", "-c", file, "--json").exit_code == 1
    done = run("format", "-t", cluster, "-c", file)
    assert (done.exit_code, done.stdout.count(f"broker 5 of cluster {cluster}")) == (0, 2), done.output
    shown = run("info", "-c", file, "--json")
    assert shown.exit_code == 0
    rows = json.loads(shown.stdout)
    assert {(row["broker_id"], row["cluster_id"]) for row in rows} == {(5, cluster)}
    assert len({row["directory_id"] for row in rows}) == 2
    with (
        KafkaServer(BrokerConfig.load(str(file))) as server,
        KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{server.endpoints[0].port}") as admin,
    ):
        assert admin.describe_cluster()["cluster_id"] == cluster
        assert "Another broker is running" in refused("format", "-t", cluster, "-c", file, "-g")


def test_a_second_format_is_refused_unless_it_may_leave_what_is_there(file: Path) -> None:
    assert run("format", "-t", OTHER, "-c", file).exit_code == 0
    metas = {path: path.read_text() for path in file.parent.rglob("meta.properties")}
    assert len(metas) == 2
    assert "formatted already" in refused("format", "-t", OTHER, "-c", file)
    assert run("format", "-t", OTHER, "-c", file, "--ignore-formatted").exit_code == 0
    assert "belongs to cluster" in refused("format", "-t", "EY3yYTSySVGtGjHjWLMcRA", "-c", file, "-g")
    assert {path: path.read_text() for path in file.parent.rglob("meta.properties")} == metas


def test_mistakes_are_one_sentence_and_make_nothing(file: Path) -> None:
    assert "no id of a cluster" in refused("format", "-t", "cluster", "-c", file)
    assert "broker.id" in refused("format", "-t", OTHER, "-c", file, "--override", "broker.id=-1")
    etcd = ["--override", "kafkapy.etcd.endpoints=http://127.0.0.1:1"]
    assert "etcd has the id of the cluster" in refused("format", "-t", OTHER, "-c", file, *etcd)
    memory = ["--override", "kafkapy.metadata.store=memory", "--override", "kafkapy.storage.backend=memory"]
    assert "in memory" in refused("info", "-c", file, *memory)
    assert "no.properties" in refused("info", "-c", file.parent / "no.properties")
    assert list(file.parent.rglob("meta.properties")) == []
