"""kafkapy doctor: each fault that it knows is found, with a change and a reason, and the machine stays as it was."""

from __future__ import annotations

import datetime
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click.testing
import pytest
from broker.conftest import config

from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties, load_properties
from kafkapy.log.log_dir import LogDir
from kafkapy.tools.cli import main
from kafkapy.tools.host_checks import clock, configuration, disks, limits, ports, versions
from kafkapy.tools.host_checks.finding import Finding, Host, Status, Subject, within

Machine = Callable[[dict[str, str]], Host]

MINIMAL = {
    "broker.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 8:2 / /data rw,noatime shared:2 - {kind} /dev/sdb1 rw
23 21 8:3 / /data/read\\040only ro,relatime shared:3 - ext4 /dev/sdc1 ro
24 21 8:4 / /database rw - xfs /dev/sdd1 rw
a line that is none
"""


def run(*arguments: object) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["doctor", *map(str, arguments)])


def rows(*arguments: object) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code in (0, 1), (result.output, result.exception)
    found: list[dict[str, Any]] = json.loads(result.stdout)
    assert result.exit_code == int(any(row["status"] == "problem" for row in found))
    return found


def broker(**keys: str) -> BrokerConfig:
    """A configuration; keys are written with underscores for dots."""
    given = MINIMAL | {key.replace("_", "."): value for key, value in keys.items()}
    return BrokerConfig.from_properties(Properties().override([f"{key}={value}" for key, value in given.items()]))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine whose kernel's files hold what a test writes into them."""

    def make(files: dict[str, str]) -> Host:
        root = tmp_path / "root"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Host(root)

    return make


def by_subject(findings: Iterator[Finding]) -> dict[str, Finding]:
    """The findings by subject, the worst of each; every one that is no good has a change and a reason."""
    order = list(Status)
    found: dict[str, Finding] = {}
    for each in findings:
        assert (each.status in (Status.WARNING, Status.PROBLEM)) == bool(each.change and each.why), each
        known = found.get(each.subject)
        if known is None or order.index(each.status) > order.index(known.status):
            found[each.subject] = each
    return found


# --- the command --------------------------------------------------------------------------------------------------


def test_a_good_file_has_no_problem_and_all_areas(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    keys = MINIMAL | {"log.dirs": str(tmp_path / "data")}
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    found = rows(file)
    assert {row["area"] for row in found} == {"versions", "configuration", "limits", "disks", "clock", "ports"}
    assert [row for row in found if row["status"] == "problem"] == []
    assert not (tmp_path / "data").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server.properties"]


def test_a_pipe_gets_what_is_to_be_changed_and_with_all_everything(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    heading, *lines = run(file).stdout.splitlines()
    assert heading.split("\t") == ["area", "subject", "status", "found", "change", "why"]
    states = {line.split("\t")[2] for line in lines}
    assert "problem" in states
    assert "ok" not in states
    assert any(line.split("\t")[2] == "ok" for line in run(file, "--all").stdout.splitlines())


def test_a_wrong_file_is_one_problem_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nnum.io.threads=many\n")
    [row] = [row for row in rows(file) if row["area"] == "configuration"]
    assert row["status"] == "problem"
    assert "num.io.threads" in row["found"] and "line 2" in row["found"]
    [row] = [row for row in rows(tmp_path / "none.properties") if row["area"] == "configuration"]
    assert row["status"] == "problem"


def test_a_plugin_that_cannot_be_loaded_is_no_fault_of_a_key(tmp_path: Path) -> None:
    information = tmp_path / "broken-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: broken\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[kafkapy]\nbroken = module_of_no_file\n")
    done = subprocess.run(
        [sys.executable, "-m", "kafkapy.tools.cli", "doctor", "--json"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    [row] = [row for row in json.loads(done.stdout) if row["status"] == "problem"]
    assert (row["area"], row["subject"]) == ("versions", "plugins")
    assert "module_of_no_file" in row["found"] and "kafkapy.plugins.disabled=broken" in row["found"]


def test_an_override_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    key = "offsets.topic.replication.factor"
    assert [row["status"] for row in rows(file) if row["subject"] == key] == ["problem"]
    assert [row for row in rows(file, "--override", f"{key}=1") if row["subject"] == key] == []


def test_a_machine_with_few_open_files(tmp_path: Path) -> None:
    """In a process of its own: a limit once lowered stays low."""
    given = [f"--override={key}={value}" for key, value in (MINIMAL | {"log.dirs": str(tmp_path)}).items()]
    done = subprocess.run(
        [sys.executable, "-m", "kafkapy.tools.cli", "doctor", "--json", *given],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    [row] = [row for row in json.loads(done.stdout) if row["subject"] == "open files"]
    assert row["status"] == "problem"
    assert "LimitNOFILE=100000" in row["change"]


def test_a_running_broker_may_have_its_ports_and_another_program_may_not(tmp_path: Path) -> None:
    with KafkaServer(config(tmp_path / "data")) as server:
        port = server.endpoints[0].port
        taken = [f"--override=listeners=PLAINTEXT://127.0.0.1:{port}", "--override=broker.id=1"]
        subject = f"PLAINTEXT://127.0.0.1:{port}"

        def state(directory: Path) -> str:
            found = rows(*taken, f"--override=log.dirs={directory}")
            # The configuration may have a word about the same listener.
            [row] = [row for row in found if row["subject"] == subject and row["area"] == "ports" and "sysctl" not in
                     (row["change"] or "")]  # fmt: skip
            return str(row["status"])

        assert state(tmp_path / "data") == "ok"
        assert state(tmp_path / "other") == "problem"
    assert state(tmp_path / "data") == "ok"


# --- configuration ------------------------------------------------------------------------------------------------


def test_keys_that_do_nothing_are_named_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/srv/kafkapy\nconfluent.license=x\nlog.preallocate=true\nlog.flush.interval.messages=1\n")
    found = {row["subject"]: row for row in rows(file)}
    assert "unknown" in found["confluent.license"]["found"] and "line 2" in found["confluent.license"]["found"]
    assert "without effect" in found["log.preallocate"]["found"] and "line 3" in found["log.preallocate"]["found"]
    assert found["log.flush.interval.messages"]["found"] == f"1 is slow ({file}, line 4)"


@pytest.mark.parametrize(
    ("listener", "keys", "said"),
    [
        ("PLAINTEXT://127.0.0.1:9092", {}, None),
        ("PLAINTEXT://localhost:9092", {}, None),
        ("PLAINTEXT://0.0.0.0:9092", {"advertised_listeners": "PLAINTEXT://127.0.0.1:9092"}, "without a login"),
        ("PLAINTEXT://:9092", {}, "without a login"),
        (
            "SASL_PLAINTEXT://:9092",
            {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", "sasl_enabled_mechanisms": "PLAIN",
             "sasl_mechanism_inter_broker_protocol": "PLAIN"},
            "without TLS",
        ),
        ("SASL_SSL://:9092", {"sasl_enabled_mechanisms": "PLAIN", "sasl_mechanism_inter_broker_protocol": "PLAIN"},
         "without an authorizer"),
    ],
)  # fmt: skip
def test_open_doors(listener: str, keys: dict[str, str], said: str | None) -> None:
    found = list(configuration._doors(broker(listeners=listener, **keys)))
    assert [said in each.found for each in found] == [True] if said else not found


def test_replicas_of_a_cluster_and_of_one_broker() -> None:
    alone = by_subject(configuration._replicas(broker(offsets_topic_replication_factor="3")))
    assert {name: each.status for name, each in alone.items()} == {"offsets.topic.replication.factor": Status.PROBLEM}
    share = "share.coordinator.state.topic.replication.factor"
    copied = broker(default_replication_factor="3", min_insync_replicas="2", **{share.replace(".", "_"): "3"})
    assert {name: each.status for name, each in by_subject(configuration._replicas(copied)).items()} == {
        "default.replication.factor": Status.PROBLEM,
        "min.insync.replicas": Status.PROBLEM,
        share: Status.WARNING,
    }
    cluster = {"kafkapy_etcd_endpoints": "http://127.0.0.1:2379"}
    weak = by_subject(
        configuration._replicas(
            broker(**cluster, transaction_state_log_min_isr="2", unclean_leader_election_enable="true")
        )
    )
    assert {name: str(each.status) for name, each in weak.items()} == {
        "offsets.topic.replication.factor": "warning",
        "transaction.state.log.replication.factor": "warning",
        "transaction.state.log.min.isr": "problem",
        "default.replication.factor": "warning",
        "unclean.leader.election.enable": "warning",
    }
    factors = ("offsets.topic", "transaction.state.log", "default")
    keys = {f"{name}.replication.factor": "3" for name in factors}
    strong = broker(**cluster, **keys, transaction_state_log_min_isr="2", min_insync_replicas="2")
    assert list(configuration._replicas(strong)) == []


def test_a_file_with_secrets_that_all_can_read(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/srv/kafkapy\nssl.keystore.password=secret\n")
    for mode, states in ((0o644, ["warning"]), (0o640, [])):
        file.chmod(mode)
        found = [row for row in rows(file) if row["subject"] == str(file)]
        assert [row["status"] for row in found] == states
        assert all("ssl.keystore.password" in row["why"] for row in found)


def test_a_certificate_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = click.testing.CliRunner().invoke(main, ["certs", "create", str(tmp_path / "certs"), "--days", "10"])
    assert made.exit_code == 0, made.output
    config = BrokerConfig.from_properties(load_properties(tmp_path / "certs" / "broker.properties"))

    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=11)
    clock_of_then = SimpleNamespace(datetime=SimpleNamespace(now=lambda _: later), UTC=datetime.UTC)
    monkeypatch.setattr(configuration, "datetime", clock_of_then)
    [found] = [each for each in configuration._certificates(config) if "valid until" in each.found]
    assert found.status is Status.PROBLEM
    assert found.why.startswith("Clients refuse the broker;")


def test_a_directory_that_is_not_there_is_made_and_its_parent_left_alone(tmp_path: Path) -> None:
    """Nobody gives /var/lib away."""
    base = tmp_path / "no-directory"
    found = disks._speed(base / "kafkapy" / "data", base)
    assert (found.status, found.subject) == (Status.PROBLEM, str(base / "kafkapy" / "data"))
    assert found.change.startswith("Make it for the broker's user: install -d")
    assert f"chown {base} " not in found.change


def test_certificates_that_end_soon_and_stores_that_do_not_open(tmp_path: Path) -> None:
    made = click.testing.CliRunner().invoke(main, ["certs", "create", str(tmp_path / "certs"), "--days", "10"])
    assert made.exit_code == 0, made.output
    file = tmp_path / "certs" / "broker.properties"
    override = f"--override=log.dirs={tmp_path / 'data'}"
    [row] = [row for row in rows(file, override) if "valid until" in row["found"]]
    assert row["status"] == "warning"
    (tmp_path / "certs" / "broker.pem").write_text("nothing")
    [row] = [row for row in rows(file, override) if row["subject"] == "ssl.keystore.location"]
    assert row["status"] == "problem"


@pytest.mark.parametrize("place", ["data", "/tmp/kafka-logs", "/var/lib/kafkapy"])
def test_places_that_do_not_last(place: str) -> None:
    found = list(configuration._places(broker(log_dirs=place)))
    assert len(found) == (place != "/var/lib/kafkapy")


# --- limits -------------------------------------------------------------------------------------------------------

ROOMY = {
    "proc/meminfo": "MemTotal: 16000000 kB\nSwapTotal: 0 kB\n",
    "proc/sys/vm/max_map_count": "262144\n",
    "proc/sys/net/core/somaxconn": "4096",
    "proc/sys/net/core/rmem_max": "212992",
    "proc/sys/net/core/wmem_max": "212992",
    "proc/self/cgroup": "0::/system.slice/kafkapy.service\n",
}


def test_a_roomy_machine(machine: Machine) -> None:
    found = by_subject(limits.check(Subject(broker(), machine(ROOMY))))
    assert {each.status for name, each in found.items() if name != "open files"} == {Status.OK}
    assert {"open files", "threads", "memory maps", "memory", "processors"} <= found.keys()


@pytest.mark.parametrize(
    ("name", "text", "subject", "status"),
    [
        ("proc/sys/vm/max_map_count", "1000", "memory maps", "warning"),
        ("proc/meminfo", "MemTotal: 200000 kB", "memory", "warning"),
        ("proc/meminfo", "MemTotal: 9000000 kB\nSwapTotal: 1000 kB\n", "swap", "warning"),
        ("sys/fs/cgroup/system.slice/memory.max", "104857600", "memory", "warning"),
        ("sys/fs/cgroup/memory.max", "104857600", "memory", "warning"),
        ("sys/fs/cgroup/system.slice/kafkapy.service/pids.max", "20", "threads", "problem"),
        ("sys/fs/cgroup/cpu.max", "50000 100000", "processors", "warning"),
        ("proc/sys/net/core/somaxconn", "16", "backlog", "warning"),
        ("proc/sys/net/core/rmem_max", "4096", "receive buffer", "warning"),
        ("proc/sys/net/core/wmem_max", "4096", "send buffer", "warning"),
    ],
)
def test_a_tight_machine(machine: Machine, name: str, text: str, subject: str, status: str) -> None:
    files = ROOMY | {"proc/sys/vm/swappiness": "60", name: text}
    found = by_subject(limits.check(Subject(broker(), machine(files))))
    assert found[subject].status == status
    others = {each.subject for each in found.values() if each.status not in (Status.OK, Status.UNKNOWN)}
    assert others - {"open files"} == {subject}


def test_limits_that_say_max_are_none(machine: Machine) -> None:
    host = machine(ROOMY | {"sys/fs/cgroup/memory.max": "max"})
    assert host.least_of_cgroups("memory.max") is None
    assert Host(Path("/nowhere")).least_of_cgroups("memory.max") is None


def test_threads_grow_with_the_configuration() -> None:
    few = limits.threads_of(broker(num_network_threads="1"))
    many = limits.threads_of(broker(num_network_threads="9", listeners="A://127.0.0.1:0,B://127.0.0.1:0",
        listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT", inter_broker_listener_name="A"))  # fmt: skip
    assert many - few == 2 * 10 - 2


def test_segments_of_the_log_directories_count(tmp_path: Path, machine: Machine) -> None:
    partition = tmp_path / "data" / "orders-0"
    partition.mkdir(parents=True)
    for number in range(3):
        (partition / f"{number:020}.log").touch()
    (tmp_path / "data" / "no partition").mkdir()
    found = by_subject(limits.check(Subject(broker(log_dirs=str(tmp_path / "data")), machine(ROOMY))))
    assert "3 segments" in found["memory maps"].found


# --- disks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status"),
    [("ext4", "ok"), ("xfs", "ok"), ("fuseblk", "ok"), ("tmpfs", "warning"), ("overlay", "warning"),
     ("nfs4", "warning"), ("cifs", "warning"), ("fuse.sshfs", "warning"), ("9p", "warning")],
)  # fmt: skip
def test_file_systems(machine: Machine, kind: str, status: str) -> None:
    host = machine({"proc/self/mountinfo": MOUNTS.format(kind=kind)})
    assert disks._place("d", Path("/data/logs"), host).status == status
    assert disks._place("d", Path("/database/logs"), host).found == "xfs on /database"
    assert disks._place("d", Path("/data/read only/logs"), host).status == "problem"
    assert disks._place("d", Path("/srv"), host).found == "ext4 on /"


def test_without_a_kernel_that_tells_nothing_is_claimed() -> None:
    assert disks._place("d", Path("/data"), Host(Path("/nowhere"))).status == "unknown"


@pytest.mark.parametrize(
    ("free", "status"), [(100 << 20, "problem"), (1 << 30, "warning"), (50 << 30, "warning"), (500 << 30, "ok")]
)
def test_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, status: str) -> None:
    monkeypatch.setattr(LogDir, "volume", lambda self: (1000 << 30, free))
    assert disks._space("d", tmp_path, 1 << 30).status == status


def test_a_directory_that_cannot_be_written_or_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for place, said in (("/proc/kafkapy", "cannot be written"), (str(file / "data"), "is no directory")):
        found = list(disks.check(Subject(broker(log_dirs=place))))
        assert any(each.status == "problem" and said in each.found for each in found), found


def test_a_directory_for_everybody_and_two_on_one_volume(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for each in (one, two):
        each.mkdir()
    one.chmod(0o777)
    found = list(disks.check(Subject(broker(log_dirs=f"{one},{two}"))))
    assert any(each.subject == str(one) and "all users" in each.found for each in found)
    assert any(each.found.startswith("on one volume") for each in found)
    assert sorted(tmp_path.rglob("*")) == [one, two]


def test_the_directory_of_another_broker(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=WNzc7e3mQT2qdN0vVIYyZg\n")
    found = by_subject(disks.check(Subject(broker(log_dirs=str(tmp_path)))))
    assert found["meta.properties"].status == "problem"
    assert "broker 7" in found["meta.properties"].found
    found = by_subject(disks.check(Subject(broker(log_dirs=str(tmp_path), broker_id="7"))))
    assert found["meta.properties"].found == "broker 7 of cluster WNzc7e3mQT2qdN0vVIYyZg"


def test_a_broker_in_memory_has_no_disks() -> None:
    [found] = disks.check(Subject(broker(kafkapy_metadata_store="memory", kafkapy_storage_backend="memory")))
    assert found.status == "ok"


# --- clock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("synchronised", "error_ms", "status"), [(True, 3.5, "ok"), (True, 16_000.0, "warning"), (False, 3.5, "warning")]
)
def test_the_daemon_of_the_clock(
    monkeypatch: pytest.MonkeyPatch, synchronised: bool, error_ms: float, status: str
) -> None:
    monkeypatch.setattr(clock, "kernel_clock", lambda: clock.KernelClock(synchronised, error_ms))
    assert clock._synchronised().status == status


def test_the_kernel_tells_or_the_check_says_that_it_does_not() -> None:
    try:
        assert clock.kernel_clock().error_ms >= 0
    except OSError:
        assert clock._synchronised().status == "unknown"


@pytest.mark.parametrize(("ahead", "states"), [(-10, []), (3600, ["warning"]), (10 * 86_400, ["problem"])])
def test_a_clock_behind_the_broker_s_own_files(tmp_path: Path, ahead: int, states: list[str]) -> None:
    file = tmp_path / "recovery-point-offset-checkpoint"
    file.touch()
    at = time.time() + ahead
    os.utime(file, (at, at))
    assert [str(each.status) for each in clock._plausible(Subject(broker(log_dirs=str(tmp_path))))] == states


def test_slow_sources_of_the_clock(machine: Machine) -> None:
    place = "sys/devices/system/clocksource/clocksource0/current_clocksource"
    assert list(clock._source(machine({place: "tsc\n"}))) == []
    assert [each.found for each in clock._source(machine({place: "hpet\n"}))] == ["hpet"]


# --- ports --------------------------------------------------------------------------------------------------------


def test_ports_of_outgoing_connections(machine: Machine) -> None:
    [endpoint] = broker(listeners="PLAINTEXT://127.0.0.1:40000").listeners
    names = {"proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n"}
    assert len(list(ports._ephemeral(endpoint, machine(names)))) == 1
    names["proc/sys/net/ipv4/ip_local_reserved_ports"] = "9092,39000-41000\n"
    assert list(ports._ephemeral(endpoint, machine(names))) == []
    assert list(ports._ephemeral(endpoint._replace(port=9092), machine(names))) == []


def test_names_that_clients_cannot_use() -> None:
    def states(**keys: str) -> list[str]:
        return [str(each.status) for each in ports._advertised(broker(**keys))]

    assert states(listeners="PLAINTEXT://127.0.0.1:9092") == ["ok"]
    assert states(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://localhost:9092") == ["warning"]
    assert states(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://192.0.2.1:9092") == ["ok"]
    assert states(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://no.invalid:9092") == ["warning"]


def test_an_address_that_is_not_this_machine_s() -> None:
    found = by_subject(ports.check(Subject(broker(listeners="PLAINTEXT://192.0.2.1:9092"))))
    assert found["PLAINTEXT://192.0.2.1:9092"].status == "problem"
    found = by_subject(ports.check(Subject(broker(metrics_listeners="192.0.2.1:9404"))))
    assert found["metrics 192.0.2.1:9404"].status == "problem"


@pytest.mark.parametrize("store", ["zookeeper.connect={0},{1}/chroot", "kafkapy.etcd.endpoints=http://{0},http://{1}"])
def test_servers_of_the_metadata_store(store: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as closed:
        here, gone = (f"127.0.0.1:{each.getsockname()[1]}" for each in (server, closed))
        closed.close()
        key, _, value = store.partition("=")

        def states(*addresses: str) -> list[str]:
            return [str(each.status) for each in ports._store(broker(**{key: value.format(*addresses)}))]

        assert states(here, here) == ["ok", "ok"]
        assert states(here, gone) == ["ok", "warning"]
        assert states(gone, gone) == ["problem", "problem"]
    assert ports.store_servers(broker()) == []


def test_a_wait_for_the_network_ends() -> None:
    assert within(60, lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        pytest.raises(TimeoutError),
    ):
        within(0.01, lambda: client.recv(1))


# --- versions -----------------------------------------------------------------------------------------------------


def test_versions_name_the_library_that_the_kernels_use() -> None:
    found = by_subject(versions.check_installation())
    assert found["OpenSSL"].found.startswith("OpenSSL ")
    assert found["Python"].status == "ok"
    assert found["kafkapy"].status == "ok"


def test_packages_that_the_configuration_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "find_spec", lambda name: None)
    keys = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl_enabled_mechanisms": "GSSAPI"}
    [found] = versions._packages(broker(**keys, sasl_mechanism_inter_broker_protocol="GSSAPI"))
    assert (found.status, "kafkapy[gssapi]" in (found.change or "")) == ("problem", True)
    assert list(versions._packages(broker())) == []


def test_kernels_of_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "LAST_KERNELS", ("kafkapy._speedups.no_such_kernel",))
    assert by_subject(versions._kernels())["kernels"].status == "problem"
