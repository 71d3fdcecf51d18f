"""Every code block of the pages runs: here, or in a test of its page.

Commands that a page shows without running them (they need a cluster, a login, a terminal) are parsed: the command and
its options exist.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from broker.conftest import config
from waiting import wait_until

from kafkapy.admin import KafkaAdminClient
from kafkapy.broker.server import KafkaServer
from kafkapy.clients.producer.producer import KafkaProducer
from kafkapy.config.properties import parse_properties
from kafkapy.plugins import PluginManager
from kafkapy.testing.broker import Broker
from kafkapy.tools.cli import main

pytestmark = pytest.mark.timeout(1200)
"""A page is many processes, each of which imports the clients."""
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "py", "sh", "bash", "properties", "toml", "yaml", "ini"}

ELSEWHERE: Mapping[str, str] = {
    "cluster.md": "tests/tools/test_cluster_page.py",
    "console.md": "plugins/kafkapy-console/tests/test_console_docs.py",
    "monitoring.md": "tests/monitoring/test_monitoring_page.py",
    "queues.md": "tests/interop/test_queues_page.py",
    "quotas.md": "tests/tools/test_quotas_page.py",
    "security.md": "tests/tools/test_security_page.py",
    "spark.md": "plugins/kafkapy-spark/tests/test_docs.py",
    "testing.md": "tests/testing/test_pytest_plugin.py",
}
"""The test that runs the blocks of a page."""
HERE = {
    "arrow.md", "asyncio.md", "clients.md", "coming-from.md", "command-line.md", "deploy.md", "moving-data.md",
    "plugins.md", "start.md", "tutorial-data.md", "tutorial-operator.md", "tutorial-plugin.md", "tutorial-python.md",
}  # fmt: skip


class Block(NamedTuple):
    """A code block: its language, its name (or its number on the page), its text."""

    language: str
    name: str
    text: str


def blocks(page: str) -> list[Block]:
    found = FENCE.findall((DOCS / page).read_text(encoding="utf-8"))
    return [Block(language, name or str(number), text) for number, (language, name, text) in enumerate(found)]


def block(page: str, name: str) -> str:
    [found] = [each.text for each in blocks(page) if each.name == name]
    return found


def test_each_page_with_code_has_a_test() -> None:
    pages = {page.name for page in DOCS.glob("*.md") if any(each.language in LANGUAGES for each in blocks(page.name))}
    assert pages == ELSEWHERE.keys() | HERE
    for page, test in ELSEWHERE.items():
        assert page in (ROOT / test).read_text(encoding="utf-8"), test


# --- one broker for all of them -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(transaction_two_phase_commit_enable=True) as made:
        yield made


class Reader:
    """Follows a page in a directory of its own, with one broker in the place of localhost:9092."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        binaries = directory / "bin"
        binaries.mkdir()
        for name, module in (("kafkapy", "kafkapy.tools.cli"), ("kafkapy-server", "kafkapy.tools.server")):
            program = binaries / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
            program.chmod(0o755)
        self.environment = os.environ | {
            "PATH": os.pathsep.join([str(binaries), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "KAFKAPY_BOOTSTRAP_SERVER": broker.bootstrap_servers,
            "XDG_CONFIG_HOME": str(directory),
        }

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    def shell(self, text: str) -> str:
        """stdout of a block for a shell."""
        return self._run("bash", "-eo", "pipefail", "-c", text.replace("localhost:9092", self.broker.bootstrap_servers))

    def python(self, text: str, before: str = "", after: str = "") -> str:
        """stdout of a program, between lines that the page leaves to its reader."""
        whole = "\n".join([textwrap.dedent(before), text, textwrap.dedent(after)])
        return self._run(sys.executable, "-c", whole.replace("localhost:9092", self.broker.bootstrap_servers))


@pytest.fixture
def reader(broker: Broker, tmp_path: Path) -> Reader:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        names = [name for name in admin.list_topics() if not name.startswith("__")]
        if names:
            admin.delete_topics(names)
            wait_until(lambda: not set(names) & set(admin.list_topics()), "the topics of other pages are gone")
    return Reader(broker, tmp_path)


# --- pages for newcomers ------------------------------------------------------------------------------------------


def test_five_minutes(reader: Reader) -> None:
    said = reader.shell(block("start.md", "records"))
    created, *records = said.splitlines()
    assert created == "Topic orders created."
    assert sorted(records) == ["ann ordered a cake", "ann ordered two coffees", "bob ordered one tea"]
    said = reader.python(block("start.md", "first.py"))
    assert len(said.splitlines()) == 4
    assert "eve ordered an espresso" in said
    said = reader.shell(block("start.md", "look"))
    assert "espresso" in said
    assert "kitchen" in said
    assert block("start.md", "broker").strip() == "kafkapy-server &"
    assert "pip install kafkapy" in block("start.md", "install")


def test_the_tutorial_for_python(reader: Reader) -> None:
    assert reader.python(block("tutorial-python.md", "shop.py")).count("order at orders-0") == 3
    assert reader.python(block("tutorial-python.md", "kitchen.py")).strip() == "3 meals"
    said = reader.shell(block("tutorial-python.md", "meals"))
    assert sorted(line.rpartition("\t")[2] for line in said.splitlines())[0].endswith("for ann")
    file = reader.directory / "test_kitchen.py"
    file.write_text(block("tutorial-python.md", "test_kitchen.py"))
    assert "1 passed" in reader._run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file))


def test_the_tutorial_for_operators(reader: Reader) -> None:
    assert [each.name for each in blocks("tutorial-operator.md")] == ["doctor", "daily", "dynamic", "certificates"]
    text = block("tutorial-operator.md", "doctor")
    # The ports of the page may be in use on the machine of the tests, and /var/lib may be read-only.
    text = text.replace("127.0.0.1:9092", "127.0.0.1:0").replace("127.0.0.1:9404", "127.0.0.1:0")
    said = reader.shell(text.replace("/var/lib/kafkapy", str(reader.directory)))
    assert {line.split("\t")[0] for line in said.splitlines()[1:]} == {
        "versions", "configuration", "limits", "disks", "clock", "ports",
    }  # fmt: skip
    said = reader.shell(block("tutorial-operator.md", "daily"))
    assert "604800000" in said and "1073741824" in said
    assert "259200000" in reader.shell(block("tutorial-operator.md", "dynamic"))
    assert "broker.pem" in reader.shell(block("tutorial-operator.md", "certificates"))


def test_the_tutorial_for_data_engineers(reader: Reader) -> None:
    reader.python(block("tutorial-data.md", "fill.py"))
    assert reader.python(block("tutorial-data.md", "read.py")).strip() == "10000 records of 7 customers"
    assert reader.python(block("tutorial-data.md", "archive.py")).strip() == "10000 rows"


def test_the_tutorial_for_plugins(reader: Reader) -> None:
    for name in ("kafkapy_counter.py", "test_counter.py", "pyproject.toml"):
        (reader.directory / name).write_text(block("tutorial-plugin.md", name))
    reader.environment["PYTHONPATH"] += os.pathsep + str(reader.directory)
    said = reader._run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_counter.py")
    assert "1 passed" in said
    module = types.ModuleType("kafkapy_counter")
    exec(block("tutorial-plugin.md", "kafkapy_counter.py"), vars(module))
    with Broker(plugins=[module], counter_greeting="Good morning") as made:
        made.create_topic("counted", 2)
        wait_until(lambda: module.created == ["counted"], "the plugin hears of the topic")


def test_the_page_for_users_of_other_clients(reader: Reader) -> None:
    imports = [each.text for each in blocks("coming-from.md") if each.language == "python" and each.name.isdigit()]
    assert len(imports) == 2
    for text in imports:
        reader.python(text)
    said = reader.python(block("coming-from.md", "confluent.py"))
    assert said.splitlines() == ["delivered [0]", "b'ann' b'a coffee'"]


# --- pages of the clients -----------------------------------------------------------------------------------------

FILL = """
import json
from kafkapy import KafkaConsumer, KafkaProducer, TopicPartition
with KafkaProducer(bootstrap_servers="localhost:9092") as filler:
    filler.send_many("orders", [b"v%d" % n for n in range(20)], keys=[b"k"] * 20).wait(timeout=60)
"""


def test_the_pages_of_the_clients(reader: Reader) -> None:
    texts = [each.text for each in blocks("clients.md")]
    assert len(texts) == 6
    send, transaction, prepared, consume, admin, _security = texts
    assert reader.python(send).strip().isdigit()
    positions = """
    consumer = KafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="g", auto_offset_reset="earliest")
    while not consumer.assignment():
        consumer.poll(timeout_ms=100)
    positions = {TopicPartition("orders", 0): 1}
    """
    reader.python(transaction, FILL + textwrap.dedent(positions))
    # A prepared transaction needs two runs of a program.
    state = reader.python(
        "",
        """
        from kafkapy import KafkaProducer
        producer = KafkaProducer(
            bootstrap_servers="localhost:9092", transactional_id="billing-1", transaction_two_phase_commit_enable=True
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("invoices", b"...")
        print(producer.prepare_transaction())
        import os, sys
        sys.stdout.flush()
        os._exit(0)
        """,
    ).strip()
    home = "kafkapy.clients.producer.transactional_requests"
    names = f"from kafkapy import KafkaProducer\nfrom {home} import PreparedTxnState\n"
    reader.python(prepared, f"{names}text = {state!r}\n")
    # The loop goes on for ever: its first record ends it.
    text = consume.replace("print(", "raise SystemExit(print(", 1).rstrip() + ")\n"
    text = text.replace('group_id="billing", ', 'group_id="billing", auto_offset_reset="earliest", ')
    assert "orders 0 0" in reader.python(text, FILL)
    reader.shell("kafkapy topics delete orders -y")
    reader.python(admin)


def test_the_page_of_arrow(reader: Reader) -> None:
    texts = [each.text for each in blocks("arrow.md")]
    assert len(texts) == 4
    first, ranges, parquet, transaction = texts
    reader.shell("kafkapy topics create orders --partitions 4")
    pandas = first.replace("group_id", 'auto_offset_reset="earliest", group_id')
    reader.python(pandas, FILL, "assert len(frame) == 20, frame\n")
    # The page reads offsets from 1,000 on of partition 0, and the beginning of partition 3.
    many = 'filler.send_many("orders", [b"v"] * 1500, partition=0).wait(timeout=60)'
    reader.python(ranges, FILL + f"    {many}\n")
    rows = "pyarrow.parquet.read_table('orders.parquet').num_rows"
    assert reader.python(parquet, "import kafkapy.arrow\n", f"print({rows})\n").strip() == "1540"
    before = """
    import kafkapy.arrow
    servers = {"bootstrap_servers": "localhost:9092"}
    consumer = KafkaConsumer("orders", group_id="clean", auto_offset_reset="earliest", **servers)
    table = consumer.poll_arrow(timeout_ms=60_000)
    offsets = {TopicPartition("orders", 0): table.num_rows}
    transform = lambda table: table
    producer = KafkaProducer(bootstrap_servers="localhost:9092", transactional_id="clean-1")
    producer.init_transactions()
    """
    reader.python(transaction, FILL + textwrap.dedent(before))


def test_the_page_of_asyncio(reader: Reader) -> None:
    program, _security = (each.text for each in blocks("asyncio.md"))
    assert "b'42' b'two apples'" in reader.python(program)


def test_the_logins_of_both_pages() -> None:
    with Broker(security="SASL_SSL", users={"ann": "secret"}) as server:
        for page in ("clients.md", "asyncio.md"):
            text = next(each.text for each in blocks(page) if "SASL_SSL" in each.text)
            text = text.replace("kafka.example:9093", server.bootstrap_servers).replace("ca.pem", server.ca_file)
            if page == "asyncio.md":
                program = f"async def run():\n    producer = {textwrap.indent(text, '    ').strip()}\n"
                program += "    async with producer:\n        await producer.send_and_wait('orders', b'1')\n"
                program = f"import asyncio\nfrom kafkapy.aio import AIOKafkaProducer\n{program}asyncio.run(run())\n"
            else:
                program = f"from kafkapy import KafkaProducer\nproducer = {text}"
                program += "producer.send('orders', b'1').get(30)\nproducer.close()\n"
            exec(program, {"password": "secret"})


# --- plugins ------------------------------------------------------------------------------------------------------


def test_the_examples_of_plugins_are_hooks_that_the_broker_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example alone; the storage backend and the entry point have tests in tests/test_plugins.py."""
    names = """
    from kafkapy.config.config_def import ConfigKey, Importance, at_least
    from kafkapy.clients.consumer.membership.assignors.api import PartitionAssignor
    from kafkapy.errors import PolicyViolationError
    from kafkapy.plugins import hookimpl
    from kafkapy.security.principal import KafkaPrincipal
    from kafkapy.security.sasl.plain import PlainMechanism as CertificateMechanism
    from kafkapy.types import ConfigType, TopicPartition
    from kafkapy_template.authorizer import DenyPrefixAuthorizer
    from kafkapy_template.quotas import TeamQuotas
    """
    monkeypatch.syspath_prepend(str(ROOT / "plugins" / "template"))
    texts = [each.text for each in blocks("plugins.md") if each.language == "python" and each.name != "storage-backend"]
    assert len(texts) >= 12
    for number, text in enumerate(texts):
        module = types.ModuleType(f"example_{number}")
        exec(textwrap.dedent(names), vars(module))
        exec(text, vars(module))
        plugins = PluginManager.load()
        plugins.register(module, module.__name__)
    properties = next(each.text for each in blocks("plugins.md") if each.language == "properties")
    listener = parse_properties(properties)["listeners"]
    assert listener.startswith("SASL_SSL")


# --- moving a directory -------------------------------------------------------------------------------------------


def test_the_script_that_moves_a_directory(tmp_path: Path) -> None:
    [text] = [each.text for each in blocks("moving-data.md")]
    old, new = tmp_path / "old", tmp_path / "new"

    def server(directory: Path) -> KafkaServer:
        return KafkaServer(config(directory))

    for directory in (old, new):
        with server(directory) as running:
            bootstrap = f"127.0.0.1:{running.endpoints[0].port}"
            with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
                admin.create_topics({"orders": {"num_partitions": 1}})
                admin.wait_for_topics(["orders"])
            if directory == old:
                with KafkaProducer(bootstrap_servers=bootstrap) as producer:
                    producer.send("orders", b"moved").get(timeout=60)
    script = text.replace("/var/kafka-logs", str(old)).replace("/var/kafkapy-logs", str(new))
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    from kafkapy import KafkaConsumer

    with (
        server(new) as running,
        KafkaConsumer(
            "orders",
            bootstrap_servers=f"127.0.0.1:{running.endpoints[0].port}",
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
        ) as consumer,
    ):
        assert next(consumer).value == b"moved"


def test_the_installation_of_the_unit_copies_files_that_exist() -> None:
    """systemd does not run here: the files, and the order in which the user is made and used."""
    text = block("deploy.md", "systemd")
    files = re.findall(r"deploy/\S+", text)
    assert len(files) == 3
    assert all((ROOT / each).is_file() for each in files)
    assert text.index("systemd-sysusers") < text.index("-g kafkapy") < text.index("systemctl enable --now kafkapy")


# --- commands that are shown only ---------------------------------------------------------------------------------


def shown_commands() -> Iterator[tuple[str, str]]:
    """(page, command line) of each `kafkapy` in blocks of all pages, joined over continued lines."""
    for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        parts = [each for language, _, each in FENCE.findall(text) if language in ("sh", "bash")]
        parts += re.findall(r"(?:^    [^\n]*\n)+", FENCE.sub("", text), re.MULTILINE)
        for part in parts:
            for line in textwrap.dedent(part).replace("\\\n", " ").splitlines():
                inner = re.findall(r"\$\((kafkapy [^)]*)\)", line)
                for command in (*re.split(r"\s[|;&]+\s", re.sub(r"\$\([^)]*\)", "X", line)), *inner):
                    words = command.strip()
                    if words.startswith("kafkapy ") and "<<" not in words:
                        yield page.name, words


def parse(line: str) -> None:
    """Find the command and check its options, without running it. click.UsageError."""
    words = shlex.split(line.partition(" #")[0])[1:]
    for mark in (">", "<", ">>", "2>"):
        if mark in words:
            del words[words.index(mark) : words.index(mark) + 2]
    command: click.Command = main
    context = click.Context(main, info_name="kafkapy")
    while isinstance(command, click.Group):
        if not words:
            return
        _, found, words = command.resolve_command(context, words)
        assert found is not None, line
        command = found
        context = click.Context(command, parent=context, info_name=command.name)
    if "-h" in words or "--help" in words:
        return
    # Names of files that do not exist here are no mistake of the page.
    parser = command.make_parser(context)
    parser.parse_args(list(words))


COMMANDS = sorted(set(shown_commands()))


def test_the_pages_show_many_commands() -> None:
    assert len(COMMANDS) > 100
    with pytest.raises(click.UsageError):
        parse("kafkapy topics create orders --no-such-option")
    with pytest.raises(click.UsageError):
        parse("kafkapy topic create orders")


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_shown_command_has_its_options(page: str, line: str) -> None:
    parse(line)
