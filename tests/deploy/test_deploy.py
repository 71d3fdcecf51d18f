"""deploy/: linters accept its files, their configurations are the broker's, and names and versions agree.

No container engine, no Kubernetes and no systemd runs here: docs/deploy.md says so.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.conftest import CommandLine

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.effects import ineffective_keys
from kafkapy.config.properties import Properties, load_properties, parse_properties
from kafkapy.testing.broker import Broker
from kafkapy.tools.host_checks import configuration
from kafkapy.version import __version__

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERFILES = sorted((DEPLOY / "container").glob("Containerfile*"))
COMPOSE = sorted((DEPLOY / "compose").glob("*.yaml"))
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNIT = DEPLOY / "systemd" / "kafkapy.service"
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
PROGRAMS = Path(sys.executable).parent


def run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


# --- linters ------------------------------------------------------------------------------------------------------


def test_the_files_are_all_here() -> None:
    assert [len(each) for each in (CONTAINERFILES, COMPOSE, KUBERNETES)] == [2, 3, 2]


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.name)
def test_hadolint_accepts_a_container_file(path: Path) -> None:
    run(PROGRAMS / "hadolint", "--config", DEPLOY / "container" / ".hadolint.yaml", path)


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_a_compose_file_follows_the_specification(path: Path) -> None:
    run(PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", path)


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_kubernetes_knows_each_field(path: Path, tmp_path: Path) -> None:
    for number, document in enumerate(documents(path)):
        single = tmp_path / f"{number}.yaml"
        single.write_text(yaml.safe_dump(document))
        run(PROGRAMS / "kubernetes-validate", "--strict", single)


def test_prometheus_accepts_its_file(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    shutil.copytree(ROOT / "docs" / "monitoring", tmp_path / "kafkapy")
    shutil.copy(DEPLOY / "compose" / "prometheus.yml", tmp_path)
    run("promtool", "check", "config", tmp_path / "prometheus.yml")


def unit_for_this_machine(tmp_path: Path) -> Path:
    """The unit with a program that exists here."""
    text = UNIT.read_text(encoding="utf-8")
    found = re.search(r"^ExecStart=(\S+)", text, re.MULTILINE)
    assert found is not None
    path = tmp_path / UNIT.name
    path.write_text(text.replace(found[1], "/bin/true").replace("User=kafkapy\nGroup=kafkapy", "User=root\nGroup=root"))
    return path


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit_for_this_machine(tmp_path))],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert [line for line in said.stderr.splitlines() if UNIT.name in line] == []
    assert said.returncode == 0, said.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_sandbox_of_the_unit_is_as_tight_as_the_page_says(tmp_path: Path) -> None:
    path = tmp_path / UNIT.name
    shutil.copy(UNIT, path)
    said = run("systemd-analyze", "security", "--offline=yes", "--no-pager", path)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert found is not None, said
    claimed = re.search(r"`systemd-analyze security` rates its exposure ([0-9.]+)", PAGE)
    assert claimed is not None
    # Another release of systemd may know more or fewer settings.
    assert abs(float(found[1]) - float(claimed[1])) <= 0.5, said


# --- configurations -----------------------------------------------------------------------------------------------


def compose_brokers() -> Iterator[tuple[str, Properties]]:
    """(name, configuration) of each broker of the compose files."""
    for path in COMPOSE:
        for name, service in documents(path)[0]["services"].items():
            if not str(service.get("image", "")).startswith("kafkapy:"):
                continue
            arguments = [str(each) for each in service.get("command", [])]
            mounts = [str(each).split(":") for each in service.get("volumes", [])]
            files = {place: source for source, place, *_ in mounts if place.endswith(".properties")}
            source = files.get("/etc/kafkapy/server.properties")
            file = path.parent / source if source else DEPLOY / "container" / "server.properties"
            overrides = [each.removeprefix("--override=") for each in arguments if each.startswith("--override=")]
            yield f"{path.stem}-{name}", load_properties(file).override(overrides)


def kubernetes_broker(index: int) -> Properties:
    """The configuration of a pod of the StatefulSet."""
    found = {each["kind"]: each for each in documents(DEPLOY / "kubernetes" / "kafkapy.yaml")}
    text = found["ConfigMap"]["data"]["server.properties"]
    [container] = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    values = {"POD_INDEX": str(index), "POD_NAME": f"kafkapy-{index}"}
    assert {each["name"] for each in container["env"]} == values.keys()
    arguments = [re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], each) for each in container["args"]]
    return parse_properties(text).override(each.removeprefix("--override=") for each in arguments[1:])


CONFIGURATIONS: Mapping[str, Properties] = {
    "container": load_properties(DEPLOY / "container" / "server.properties"),
    "systemd": load_properties(DEPLOY / "systemd" / "server.properties"),
    **dict(compose_brokers()),
    **{f"kubernetes-{index}": kubernetes_broker(index) for index in range(3)},
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_broker_reads_each_configuration_whole(name: str) -> None:
    config = BrokerConfig.from_properties(CONFIGURATIONS[name])
    assert config.unknown_keys == []
    assert ineffective_keys(config) == []
    assert all(Path(each).is_absolute() for each in config.log_dirs)
    assert list(configuration._replicas(config)) == []


@pytest.mark.parametrize("prefix", ["cluster", "kubernetes"])
def test_the_brokers_of_a_cluster_differ_where_they_must(prefix: str) -> None:
    configs = [BrokerConfig.from_properties(each) for name, each in CONFIGURATIONS.items() if name.startswith(prefix)]
    assert len(configs) == 3
    assert len({each.broker_id for each in configs}) == 3
    addresses = [item.connection_string for each in configs for item in each.advertised_listeners]
    assert len(set(addresses)) == len(addresses)
    assert {each.metadata_store for each in configs} == {"etcd"}


# --- names --------------------------------------------------------------------------------------------------------


def test_images_have_this_version() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (*CONTAINERFILES, *COMPOSE, *KUBERNETES)}
    versions = {
        (path.name, found)
        for path, text in texts.items()
        for found in re.findall(r"(?:image:|FROM) kafkapy(?:-console)?:(\S+)", text)
    }
    assert {version for _, version in versions} == {__version__}
    assert len(versions) >= 5


def test_a_build_gets_what_its_files_copy() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    for path in CONTAINERFILES:
        for line in re.findall(r"^COPY (?!--from)(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            for source in line.split()[:-1]:
                assert any(source == each or source.startswith(f"{each}/") for each in kept), source
                if "kafkapy-console" not in source or (ROOT / "plugins" / "kafkapy-console").exists():
                    assert (ROOT / source).exists(), source


def test_probes_use_ports_that_the_broker_opens() -> None:
    for path in KUBERNETES:
        for document in documents(path):
            for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
                names = {each["name"] for each in container["ports"]}
                probes = [value for key, value in container.items() if key.endswith("Probe")]
                assert probes
                assert {(each.get("tcpSocket") or each["httpGet"])["port"] for each in probes} <= names


def test_the_health_check_tells_a_broker_from_none(broker: Broker) -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text(encoding="utf-8")
    found = re.search(r"^HEALTHCHECK [^\n]*\\\n\s+CMD (\[[^\n]*\])$", text, re.MULTILINE)
    assert found is not None
    program, *arguments = json.loads(found[1])
    assert program == "kafkapy"
    assert CommandLine(broker.bootstrap_servers)(*arguments).exit_code == 0
    assert CommandLine("127.0.0.1:1")(*arguments, "-X", "bootstrap.timeout.ms=100").exit_code == 1


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made
