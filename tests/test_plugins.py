"""Plugins: how they are found, what happens to those that are broken, and the template, installed for real."""

from __future__ import annotations

import ast
import inspect
import logging
import os
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy import KafkaProducer, hookspecs
from kafkapy.admin import KafkaAdminClient
from kafkapy.broker.context import decide
from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BROKER_CONFIG_DEF, BrokerConfig
from kafkapy.config.config_def import ConfigKey, Importance, at_least
from kafkapy.config.single_node import SINGLE_NODE
from kafkapy.errors import ConfigError, ErrorCode, PluginError, SecurityDisabledError
from kafkapy.installed_plugins import installed_plugins
from kafkapy.plugins import BUILTIN_PLUGINS, PluginManager, hookimpl
from kafkapy.security.authorizer.allow_all import AllowAllAuthorizer
from kafkapy.security.authorizer.base import (
    ALLOW_ALL_EPOCH,
    AclBindingFilter,
    Action,
    AuthorizationResult,
    Authorizer,
)
from kafkapy.types import AclOperation, ConfigType, ListOffsetsTimestamp, ResourceType, TopicPartition

ROOT = Path(__file__).parent.parent
HOOKS = {name: hook for name, hook in vars(hookspecs).items() if hasattr(hook, "kafkapy_spec")}
ALLOW_ALL = "kafkapy.security.authorizer.allow_all"


def manager_with(**plugins: object) -> PluginManager:
    manager = PluginManager()
    for name, plugin in plugins.items():
        manager.register(plugin, name)
    return manager


class Numbered:
    """A plugin with one configuration key and one named reporter."""

    @hookimpl
    def register_config_keys(self):
        doc = "A number."
        return [ConfigKey("numbered.n", ConfigType.INT, 1, at_least(1), Importance.LOW, doc), "numbered.extra."]

    @hookimpl
    def register_metrics_reporters(self):
        return {"numbers": lambda config: Reporter(config["numbered.n"])}


class Reporter:
    """A metrics reporter that reports nothing."""

    def __init__(self, number: int) -> None:
        self.number = number

    def start(self, collectors: object) -> None: ...

    def close(self) -> None: ...


# --- hooks --------------------------------------------------------------------------------------------------------


def test_there_are_the_hooks_of_the_documentation() -> None:
    documented = re.findall(r"^### `(\w+)`$", (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(documented) == sorted(HOOKS)
    assert len(HOOKS) == 23


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_each_hook_has_a_contract_and_its_arguments_are_documented(name: str) -> None:
    assert len(inspect.getdoc(HOOKS[name]) or "") > 40
    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    section = text.partition(f"### `{name}`")[2].partition("\n### ")[0]
    for argument in inspect.signature(HOOKS[name]).parameters:
        assert f"`{argument}`" in section


def test_each_hook_is_called_by_the_product() -> None:
    files = [path for path in sorted((ROOT / "kafkapy").rglob("*.py")) if path.name != "hookspecs.py"]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    calls = set(re.findall(r'(?:notify|_table|_items)\(\s*"(\w+)"', code))
    assert sorted(calls) == sorted(HOOKS)


def test_a_function_that_is_no_hook_is_refused() -> None:
    class Misspelt:
        @hookimpl
        def broker_startd(self): ...

    with pytest.raises(PluginError, match=r"plugin mine .*broker_startd"):
        manager_with(mine=Misspelt())


# --- tables -------------------------------------------------------------------------------------------------------


def test_the_built_in_plugins_are_registered_through_hooks() -> None:
    manager = PluginManager.load(disabled=[point.name for point in installed_plugins()])
    assert manager.names == list(BUILTIN_PLUGINS)
    assert set(manager.authorizers) >= {"allow_all"}
    assert set(manager.sasl_mechanisms) >= {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert set(manager.storage_backends) >= {"local", "memory"}
    assert set(manager.metadata_stores) == {"embedded", "memory", "zookeeper", "etcd"}


def test_a_name_that_two_plugins_claim_is_refused() -> None:
    manager = manager_with(first=Numbered(), second=Numbered())
    with pytest.raises(PluginError, match="second: register_metrics_reporters gave the name 'numbers', which first"):
        _ = manager.metrics_reporters
    with pytest.raises(PluginError, match=r"second: configuration key numbered\.n is already defined"):
        manager.broker_config_def()


def test_a_key_of_kafka_cannot_be_taken() -> None:
    class Thief:
        @hookimpl
        def register_config_keys(self):
            return [ConfigKey("num.partitions", ConfigType.INT, 1, None, Importance.LOW, "Mine.")]

    with pytest.raises(PluginError, match=r"plugin thief: configuration key num\.partitions is already defined"):
        manager_with(thief=Thief()).broker_config_def()


def test_keys_of_plugins_are_checked_like_kafkas() -> None:
    definition = manager_with(numbered=Numbered()).broker_config_def()
    assert len(definition) == len(BROKER_CONFIG_DEF) + 1
    config = BrokerConfig({"numbered.n": "5", "numbered.extra.thing": "x"}, definition=definition)
    assert (config["numbered.n"], config["numbered.extra.thing"]) == (5, "x")
    assert [entry.value for entry in config.describe(["numbered.n"])] == ["5"]
    with pytest.raises(ConfigError, match="at least 1"):
        BrokerConfig({"numbered.n": "0"}, definition=definition)
    assert config.unknown_keys == []
    with pytest.raises(ConfigError, match="did you mean numbered.n"):
        BrokerConfig({"number.n": "5"}, definition=definition)
    assert BrokerConfig({"numbered.n": "5"}).unknown_keys == ["numbered.n"], "the plugin is not there"


def test_a_register_hook_that_fails_names_its_plugin() -> None:
    class Broken:
        @hookimpl
        def register_authorizers(self):
            raise RuntimeError("no luck")

    with pytest.raises(PluginError, match="plugin broken failed in register_authorizers.*no luck"):
        _ = manager_with(broken=Broken()).authorizers


def test_reporters_are_made_by_name() -> None:
    manager = manager_with(numbered=Numbered())
    definition = manager.broker_config_def()
    config = BrokerConfig({"metric.reporters": "numbers", "numbered.n": "3"}, definition=definition)
    assert [each.number for each in manager.create_metrics_reporters(config)] == [3]
    with pytest.raises(ConfigError, match=r"metric\.reporters: must be one of numbers"):
        manager.create_metrics_reporters(BrokerConfig({"metric.reporters": "x"}, definition=definition))


# --- contracts ----------------------------------------------------------------------------------------------------


class Lacking:
    """An object that has a name, and nothing that a contract asks for."""

    name = "mine"


def registering(hook: str, value: object) -> PluginManager:
    """A manager with a plugin `broken` whose hook gives the value."""
    plugin = type("Plugin", (), {hook: hookimpl(lambda self: value)})()
    return manager_with(broken=plugin)


MAKERS: dict[str, Callable[[PluginManager, Any], object]] = {
    "register_authorizers": lambda manager, name: manager.create_authorizer(
        BrokerConfig({"authorizer.class.name": name})
    ),
    "register_storage_backends": lambda manager, name: manager.create_storage_backends(BrokerConfig({})),
    "register_metadata_stores": lambda manager, name: manager.create_metadata_store(
        BrokerConfig({"kafkapy.metadata.store": name})
    ),
    "register_partition_assignors": lambda manager, name: manager.create_partition_assignor("key", name, name),
    "register_group_assignors": lambda manager, name: manager.create_group_assignors(
        BrokerConfig({"group.consumer.assignors": name})
    ),
    "register_metrics_reporters": lambda manager, name: manager.create_metrics_reporters(
        BrokerConfig({"metric.reporters": name})
    ),
    "register_client_telemetry_receivers": lambda manager, name: manager.create_client_telemetry_receivers(
        BrokerConfig({"kafkapy.client.telemetry.receivers": name})
    ),
    "register_replica_selectors": lambda manager, name: manager.create_replica_selector(
        BrokerConfig({"replica.selector.class": name})
    ),
    "register_quota_managers": lambda manager, name: manager.create_quota_manager(
        BrokerConfig({"client.quota.callback.class": name})
    ),
    "register_create_topic_policies": lambda manager, name: manager.create_create_topic_policy(
        BrokerConfig({"create.topic.policy.class.name": name})
    ),
    "register_alter_config_policies": lambda manager, name: manager.create_alter_config_policy(
        BrokerConfig({"alter.config.policy.class.name": name})
    ),
}
MISSING = {
    "register_authorizers": "decisions_epoch, configure, authorize, authorize_by_resource_type, create_acls, "
    "delete_acls, acls and close",
    "register_storage_backends": "persistent, open_log, list_logs, rename_log and delete_log",
    "register_metadata_stores": "start, close, session_id, is_shared, session_timeout_s, last_transaction, get, "
    "get_many, exists, children, commit, watch_node, watch_children, listen_session, create, set, delete, ensure_path, "
    "ensure_paths and subtree",
    "register_partition_assignors": "supported_protocols, subscription_user_data, assign and on_assignment",
    "register_group_assignors": "assign",
    "register_metrics_reporters": "start and close",
    "register_client_telemetry_receivers": "receive and close",
    "register_replica_selectors": "select and close",
    "register_quota_managers": "quota_metric_tags, quota_limit, update_quota, remove_quota, quota_reset_required, "
    "update_cluster_metadata and close",
    "register_create_topic_policies": "validate and close",
    "register_alter_config_policies": "validate and close",
}


@pytest.mark.parametrize("hook", MAKERS)
def test_what_breaks_its_contract_is_named_with_plugin_hook_and_what_is_missing(hook: str) -> None:
    def said(value: object) -> str:
        with pytest.raises(PluginError) as caught:
            MAKERS[hook](registering(hook, value), "mine")
        return str(caught.value)

    def failing(*arguments: object) -> None:
        raise RuntimeError("no luck")

    lacking = f"plugin broken: 'mine' of {hook} makes a Lacking, which has no {MISSING[hook]}; the contract "
    assert said({"mine": lambda *config: Lacking()}).startswith(lacking)
    assert f"'mine' of {hook} makes None, which has no " in said({"mine": lambda *config: None})
    assert said({"mine": failing}) == f"plugin broken: 'mine' of {hook} cannot be made: RuntimeError: no luck"
    assert said({"mine": 5}) == f"plugin broken: {hook} gave an int for 'mine', which cannot be called"
    wanted = "not a mapping from names to something that can be called"
    assert said(["mine"]) == f"plugin broken: {hook} gave a list, {wanted}"
    assert said(None) == f"plugin broken: {hook} gave None, {wanted}"


@pytest.mark.parametrize("hook", ["register_commands", "register_config_keys"])
def test_a_list_is_asked_for(hook: str) -> None:
    manager = registering(hook, None)
    with pytest.raises(PluginError, match=f"plugin broken: {hook} gave None, not a list"):
        _ = manager.commands if hook == "register_commands" else manager.broker_config_def()


def test_an_assignor_has_the_name_it_is_registered_under() -> None:
    class Assignor:
        name = "other"

        def assign(self, spec: object, topics: object) -> dict[str, object]:
            return {}

    with pytest.raises(PluginError, match="plugin broken: 'mine' of register_group_assignors .* the name 'other'"):
        MAKERS["register_group_assignors"](registering("register_group_assignors", {"mine": Assignor}), "mine")


def test_an_authorizer_that_cannot_be_configured_is_named() -> None:
    class Failing(AllowAllAuthorizer):
        def configure(self, config: BrokerConfig) -> None:
            raise KeyError("path")

    with pytest.raises(PluginError, match="plugin broken: configure of the authorizer 'mine' failed: KeyError: 'path'"):
        MAKERS["register_authorizers"](registering("register_authorizers", {"mine": Failing}), "mine")


@pytest.mark.parametrize("answers", [[], None, [AuthorizationResult.ALLOWED] * 2])
def test_an_authorizer_answers_every_question(answers: object) -> None:
    authorizer = SimpleNamespace(decisions_epoch=1, authorize=lambda context, actions: answers)
    questions = [(AclOperation.READ, ResourceType.TOPIC, "t")]
    with pytest.raises(PluginError, match="authorizer SimpleNamespace: authorize gave .* to 1 actions"):
        decide(authorizer, SimpleNamespace(), questions, True)  # type: ignore[arg-type]


# --- the storage backend of the documentation ---------------------------------------------------------------------


def test_the_storage_backend_of_the_documentation_keeps_what_retention_deletes(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python storage-backend\n(.*?)```", text, re.DOTALL)
    module = types.ModuleType("archiving")
    exec(source, vars(module))
    keys = {
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "logs"),
        "archive.dir": str(tmp_path / "archive"),
        "log.initial.task.delay.ms": "3600000",
        **SINGLE_NODE,
    }

    def server() -> KafkaServer:
        plugins = PluginManager.load()
        plugins.register(module, "archiving")
        return KafkaServer(BrokerConfig(keys, definition=plugins.broker_config_def()), plugins)

    configs = {"kafkapy.storage.backend": "archiving", "segment.bytes": "2000", "retention.bytes": "3000"}
    with server() as running:
        bootstrap = f"127.0.0.1:{running.endpoints[0].port}"
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin, KafkaProducer(bootstrap_servers=bootstrap) as out:
            admin.create_topics({"orders": {"num_partitions": 1, "configs": configs}})
            for number in range(10):
                out.send("orders", b"%d" % number * 1500).get(30)
        running.context.log_manager.tasks.apply_retention()
        archived = sorted(each.name for each in (tmp_path / "archive" / "orders-0").iterdir())
        assert archived[0] == f"{0:020d}.log" and 5 <= len(archived) < 10
        assert (tmp_path / "logs" / "archiving" / "orders-0").is_dir()
    with server() as running, KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{running.endpoints[0].port}") as admin:
        place = TopicPartition("orders", 0)
        ends = admin.list_partition_offsets({place: ListOffsetsTimestamp.LATEST})
        starts = admin.list_partition_offsets({place: ListOffsetsTimestamp.EARLIEST})
        assert ends[place].offset == 10
        assert starts[place].offset == len(archived)


def test_a_server_without_given_plugins_reads_the_keys_of_the_installed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[int] = []

    class Counting(Numbered):
        @hookimpl
        def broker_started(self, broker):
            started.append(broker.config["numbered.n"])

    def load(disabled: Sequence[str] = ()) -> PluginManager:
        assert list(disabled) == ["other"]
        plugins = installed(disabled)
        plugins.register(Counting(), "counting")
        return plugins

    keys = {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), **SINGLE_NODE}
    keys |= {"kafkapy.plugins.disabled": "other", "numbered.n": "7"}
    installed = PluginManager.load
    monkeypatch.setattr(PluginManager, "load", load)
    with pytest.raises(ConfigError, match=r"numbered\.n"):
        KafkaServer(BrokerConfig(keys | {"numbered.n": "few"}))
    with KafkaServer(BrokerConfig(keys)):
        pass
    assert started == [7]
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


# --- events -------------------------------------------------------------------------------------------------------


def test_an_event_reaches_every_plugin_with_the_arguments_it_wants(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []

    class Broken:
        @hookimpl
        def topic_created(self, topic):
            raise RuntimeError("no luck")

    class Listener:
        @hookimpl
        def topic_created(self, partitions, topic):
            seen.append((topic, partitions))

    manager = manager_with(broken=Broken(), listener=Listener())
    with caplog.at_level(logging.ERROR, "kafkapy.plugins"):
        manager.notify("topic_created", topic="t", topic_id=None, partitions=3, configs={})
    assert seen == [("t", 3)]
    assert "Plugin broken failed in the hook topic_created" in caplog.text


def test_an_event_is_called_with_all_its_arguments() -> None:
    with pytest.raises(TypeError, match=r"topic_deleted takes \['topic', 'topic_id'\], not \['topic'\]"):
        PluginManager().notify("topic_deleted", topic="t")


# --- the authorizer of a broker without one -----------------------------------------------------------------------


def test_without_an_authorizer_everything_is_allowed() -> None:
    manager = PluginManager.load(builtins=[ALLOW_ALL], disabled=[point.name for point in installed_plugins()])
    authorizer = manager.create_authorizer(BrokerConfig({}))
    assert isinstance(authorizer, Authorizer)
    assert authorizer.decisions_epoch == ALLOW_ALL_EPOCH
    action = Action(AclOperation.DELETE, ResourceType.TOPIC, "t")
    assert authorizer.authorize(SimpleNamespace(), [action, action]) == [AuthorizationResult.ALLOWED] * 2
    assert authorizer.authorize_by_resource_type(SimpleNamespace(), AclOperation.WRITE, ResourceType.TOPIC)


def test_without_an_authorizer_acls_are_answered_as_disabled() -> None:
    manager = PluginManager.load(builtins=[ALLOW_ALL], disabled=[point.name for point in installed_plugins()])
    authorizer = manager.create_authorizer(BrokerConfig({}))
    [result] = authorizer.delete_acls(SimpleNamespace(), [AclBindingFilter()])
    assert result.error is not None
    assert result.error.code is ErrorCode.SECURITY_DISABLED
    with pytest.raises(SecurityDisabledError):
        authorizer.acls(AclBindingFilter())


def test_an_authorizer_that_is_not_registered_is_refused() -> None:
    manager = PluginManager.load(builtins=[ALLOW_ALL], disabled=[point.name for point in installed_plugins()])
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name: must be one of allow_all"):
        manager.create_authorizer(BrokerConfig({"authorizer.class.name": "no.such.Authorizer"}))


# --- installed plugins --------------------------------------------------------------------------------------------


def run_python(code: str, *path: Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT]))}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def install_by_hand(directory: Path, name: str, entry_points: str, **modules: str) -> None:
    """What pip leaves in site-packages."""
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    for module, source in modules.items():
        (directory / f"{module}.py").write_text(source)


LOAD = f"from kafkapy.plugins import PluginManager as M; print(M.load(builtins=[{ALLOW_ALL!r}]).names)"


def test_a_plugin_that_cannot_be_imported_stops_the_start_by_name(tmp_path: Path) -> None:
    install_by_hand(tmp_path, "badplug", "[kafkapy]\nbad = badmod\n", badmod="import does_not_exist\n")
    outcome = run_python(LOAD, tmp_path)
    assert outcome.returncode != 0
    assert "plugin bad (badplug, badmod) cannot be loaded: ModuleNotFoundError" in outcome.stderr
    assert "kafkapy.plugins.disabled=bad" in outcome.stderr
    call = "M.for_properties({'kafkapy.plugins.disabled': 'x, bad'})"
    code = f"from kafkapy.plugins import PluginManager as M; print({call}.names)"
    without = run_python(code, tmp_path)
    assert without.returncode == 0, without.stderr
    names = ast.literal_eval(without.stdout)
    assert names[: len(BUILTIN_PLUGINS)] == list(BUILTIN_PLUGINS)
    assert "bad" not in names


def test_two_installed_plugins_of_one_name_are_refused(tmp_path: Path) -> None:
    install_by_hand(tmp_path / "a", "plug_a", "[kafkapy]\nsame = mod_a\n", mod_a="")
    install_by_hand(tmp_path / "b", "plug_b", "[kafkapy]\nsame = mod_b\n", mod_b="")
    outcome = run_python(LOAD, tmp_path / "a", tmp_path / "b")
    assert "two plugins are named same: mod_a and mod_b" in outcome.stderr


def test_what_is_installed_is_what_importlib_metadata_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import entry_points

    early, late, archive = tmp_path / "early", tmp_path / "late", tmp_path / "packed"
    install_by_hand(early, "other", "[console_scripts]\nx = y:z\n")
    install_by_hand(early, "upgraded", "[console_scripts]\nno_plugin_any_more = y:z\n")
    lines = "# a comment\n[console_scripts]\nx=y:z\n\n[kafkapy]\n  b = mod : Class.attribute [extra]\n#c = d\na=mod\n"
    install_by_hand(late, "My_Plugins", lines)
    install_by_hand(late, "upgraded", "[kafkapy]\nold = shadowed\n")
    install_by_hand(late, "no_entry_points", "")
    (late / "no_entry_points-1.0.dist-info" / "entry_points.txt").unlink()
    install_by_hand(archive, "packed", "[kafkapy]\nz = packed_module\n")
    zipped = shutil.make_archive(str(tmp_path / "archive"), "zip", archive)
    places = [early, late, late, tmp_path / "missing", zipped]
    monkeypatch.setattr(sys, "path", [*map(str, places), *sys.path])
    found = {(plugin.name, plugin.value) for plugin in installed_plugins()}
    assert {("a", "mod"), ("b", "mod : Class.attribute [extra]"), ("z", "packed_module")} <= found
    assert found == {(point.name, point.value) for point in entry_points(group="kafkapy")}


def test_an_entry_point_may_name_an_attribute(tmp_path: Path) -> None:
    source = "from types import SimpleNamespace as N\ndef register_authorizers(): return {}\nouter = N(inner=N())\n"
    install_by_hand(tmp_path, "deep", "[kafkapy]\ndeep = deep_module : outer.inner [extra]\n", deep_module=source)
    outcome = run_python(LOAD, tmp_path)
    assert "deep" in ast.literal_eval(outcome.stdout), outcome.stderr


def test_plugins_are_found_without_importlib_metadata() -> None:
    outcome = run_python(
        "import sys; from kafkapy.installed_plugins import installed_plugins; installed_plugins();"
        "print('importlib.metadata' in sys.modules)"
    )
    assert outcome.stdout == "False\n", outcome.stderr


@pytest.fixture(scope="module")
def installed_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template, copied away from the work tree and installed with pip."""
    directory = tmp_path_factory.mktemp("template")
    source, target = directory / "source", directory / "site"
    shutil.copytree(ROOT / "plugins" / "template", source, ignore=shutil.ignore_patterns("__pycache__", "build"))
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(source)], check=True, timeout=240)
    return target


def test_the_template_is_installed_and_loaded(installed_template: Path) -> None:
    code = f"""
import logging; logging.basicConfig(level="INFO")
from types import SimpleNamespace
from typing import Any
from kafkapy.config.broker import BrokerConfig
from kafkapy.plugins import PluginManager
from kafkapy.security.authorizer.base import Action
from kafkapy.types import AclOperation, ResourceType
plugins = PluginManager.load(builtins=[{ALLOW_ALL!r}])
given = {{"authorizer.class.name": "deny_prefix", "template.deny.prefix": "x-"}}
config = BrokerConfig(given, definition=plugins.broker_config_def())
plugins.notify("broker_started", broker=SimpleNamespace(config=config))
actions = [Action(AclOperation.READ, ResourceType.TOPIC, name) for name in ("x-1", "y")]
print(plugins.names[-1], [answer.name for answer in plugins.create_authorizer(config).authorize(None, actions)])
"""
    outcome = run_python(code, installed_template)
    assert outcome.stdout.strip() == "template ['DENIED', 'ALLOWED']", outcome.stderr
    assert "denies topics that begin with 'x-'" in outcome.stderr


def test_the_templates_own_tests_pass(installed_template: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "plugins" / "template" / "tests", tmp_path / "tests")
    code = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests']))"
    outcome = run_python(code, installed_template, cwd=tmp_path)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
