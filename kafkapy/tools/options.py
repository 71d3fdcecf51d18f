"""Shared parts of commands that connect to a cluster.

These are options, the admin client, errors as one sentence, and completion of names. A command imports the admin client
when it runs, so that help and completion start fast.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkapy.errors import ConfigError, ErrorCode, KafkaError, NoBrokersAvailableError
from kafkapy.tools.passwords import client_keys
from kafkapy.tools.terminal import PrintableFormatter, printable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient
    from kafkapy.config.clients import ClientConfigDef

__all__ = [
    "DEFAULT_BOOTSTRAP",
    "GROUP",
    "TOPIC",
    "bootstrap_option",
    "cluster_options",
    "cluster_options_beside_config",
    "command_config_option",
    "connected",
    "given_settings",
    "json_option",
    "key_values",
    "local_errors",
    "log_to_stderr",
    "one_sentence",
    "parse_partitions",
    "settings_of_admin",
    "yes_option",
]

F = TypeVar("F", bound=Callable[..., Any])
Settings = dict[str, object]

DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "KAFKAPY_BOOTSTRAP_SERVER"
DEFAULTS: Settings = {
    "bootstrap.servers": DEFAULT_BOOTSTRAP,
    "client.id": "kafkapy-cli",
    "bootstrap.timeout.ms": 5000,
}
"""A person waits: the command gives up after five seconds without a broker."""
COMPLETION_TIMEOUT_MS = 1500
NOT_AUTHORIZED = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)

bootstrap_option = click.option(
    "--bootstrap-server",
    "-b",
    "bootstrap",
    envvar=BOOTSTRAP_VARIABLE,
    show_default=DEFAULT_BOOTSTRAP,
    show_envvar=True,
    metavar="HOST:PORT[,...]",
    help="Addresses of brokers.",
)
PROFILE_VARIABLE = "KAFKAPY_PROFILE"
CONFIG_VARIABLE = "KAFKAPY_CONFIG"


def _config_option(*names: str) -> Callable[[F], F]:
    return click.option(
        *names,
        "command_config",
        envvar=CONFIG_VARIABLE,
        show_envvar=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="File with keys of the client, one key=value per line.",
    )


command_config_option = _config_option("--command-config")
config_option = _config_option("--config", "--command-config")
profile_option = click.option(
    "--profile",
    envvar=PROFILE_VARIABLE,
    show_envvar=True,
    metavar="NAME",
    help="Profile with keys of the client, in place of the one in use.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Skip the confirmation.")


def cluster_options(command: F) -> F:
    """Add the options that name and configure the cluster.

    The command gets them as `settings`. A KafkaError, or a wrong value, becomes one sentence and exit code 1.
    """
    return _cluster_options(command, config_option)


def cluster_options_beside_config(command: F) -> F:
    """As `cluster_options`, for a command whose --config is another option.

    Only --command-config names the file then.
    """
    return _cluster_options(command, command_config_option)


def local_errors(command: F) -> F:
    """Turn a KafkaError, or a wrong value, into one sentence and exit code 1."""

    @wraps(command)
    def run(**arguments: Any) -> None:
        try:
            command(**arguments)
        except (KafkaError, ValueError) as error:
            raise click.ClickException(one_sentence(error)) from None

    return run  # type: ignore[return-value]


def _cluster_options(command: F, config_option: Callable[[Any], Any]) -> F:
    @bootstrap_option
    @config_option
    @profile_option
    @click.option(
        "-X",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set one configuration key of the client. The key of a secret, without =VALUE, asks for it.",
    )
    @click.option("--verbose", "-v", is_flag=True, help="Print the client's log on stderr.")
    @wraps(command)
    def run(
        bootstrap: str | None,
        command_config: str | None,
        profile: str | None,
        properties: tuple[str, ...],
        verbose: bool,
        **arguments: Any,
    ) -> None:
        log_to_stderr(verbose)
        try:
            command(settings=_settings(bootstrap, command_config, properties, profile), **arguments)
        except (KafkaError, ValueError) as error:
            raise click.ClickException(one_sentence(error) + _remedy(error)) from None

    return run  # type: ignore[no-any-return]


@contextmanager
def connected(settings: Settings) -> Iterator[KafkaAdminClient]:
    """An admin client that closes at the end of the block. KafkaError."""
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

    with KafkaAdminClient(settings) as admin:
        yield admin


def settings_of_admin(settings: Settings, definition: ClientConfigDef) -> Settings:
    """The settings of another client that an admin client accepts.

    ConfigError for a key that neither knows.
    """
    from kafkapy.config.admin import ADMIN
    from kafkapy.config.clients import ClientConfig

    ClientConfig(definition, settings)
    shared = {}
    for name, value in settings.items():
        with contextlib.suppress(ConfigError):
            ADMIN.key_of(name)
            shared[name] = value
    return shared


def key_values(given: tuple[str, ...], option: str = "KEY=VALUE") -> dict[str, str]:
    """{key: value} of key=value texts. click.UsageError."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{text!r} is not {option}.")
        found[key.strip()] = value
    return found


def given_settings(
    bootstrap: str | None, command_config: str | None, properties: tuple[str, ...], profile: str | None = None
) -> dict[str, str]:
    """A client's configuration from a command line, with the environment and a profile.

    Without a file or a profile it begins with the profile in use. `bootstrap` comes from the line or the variable, and
    wins over bootstrap.servers of the others. click.UsageError, ConfigError, KafkaError for an unknown profile.
    """
    from kafkapy.config.properties import Properties, load_properties
    from kafkapy.config.providers import PROVIDERS, resolve_properties
    from kafkapy.tools.client_settings import current_profile, environment_settings, merged, read_profile

    if profile is None and command_config is None:
        profile = current_profile()
    layers: list[Mapping[str, str]] = []
    if profile is not None:
        layers.append(read_profile(profile))
    layers.append(environment_settings(os.environ))
    file = Properties() if command_config is None else load_properties(command_config)
    layers += [file, client_keys(properties), {"bootstrap.servers": bootstrap} if bootstrap else {}]
    given = Properties(command_config or "")
    for key, value in merged(*layers).items():
        given.set(key, value, file.line_of(key) if file.get(key) == value else None)
    settings = dict(resolve_properties(given))
    settings.pop(PROVIDERS, None)
    return settings


def parse_partitions(text: str) -> tuple[str, list[int] | None]:
    """(topic, partitions) of "topic" (None: all), "topic:0", "topic:0,3-5". click.UsageError."""
    topic, colon, listed = text.rpartition(":")
    if not colon:
        return text, None
    partitions: list[int] = []
    for part in listed.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise click.UsageError(f"{text!r} is not TOPIC, TOPIC:0 or TOPIC:0,3-5.")
        partitions += range(int(first), int(last) + 1)
    return topic, partitions


def _settings(
    bootstrap: str | None, command_config: str | None, properties: tuple[str, ...], profile: str | None = None
) -> Settings:
    return {**DEFAULTS, **given_settings(bootstrap, command_config, properties, profile)}


def log_to_stderr(verbose: bool) -> None:
    """Print the clients' log, or nothing.

    Without --verbose, a client's warnings would repeat the error.
    """
    if verbose:
        handler = logging.StreamHandler()
        handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=logging.DEBUG, handlers=[handler])
    elif not logging.root.handlers:
        logging.getLogger("kafkapy").addHandler(logging.NullHandler())


def _remedy(error: Exception) -> str:
    """A hint for errors whose text has none."""
    if isinstance(error, NoBrokersAvailableError):
        return " Name brokers with --bootstrap-server (-b)."
    if isinstance(error, ConfigError) and _is_key_of_topics(error.key):
        return f" {error.key} belongs to topics, not to the client: kafkapy topics create TOPIC --config KEY=VALUE."
    code = error.code if isinstance(error, KafkaError) else None
    return " The client's principal needs an ACL that allows this operation." if code in NOT_AUTHORIZED else ""


def _is_key_of_topics(key: str) -> bool:
    """Whether only topics have a configuration key of that name."""
    from kafkapy.config.admin import ADMIN
    from kafkapy.config.topic import TOPIC_CONFIG_DEF

    return key in TOPIC_CONFIG_DEF and key not in ADMIN


def one_sentence(error: Exception | str) -> str:
    """The error as one line that begins and ends like a sentence."""
    text = printable(" ".join(str(error).split())) or type(error).__name__
    if text.partition(" ")[0].islower() and not text.startswith("kafkapy"):  # neither a name such as maxTasks, nor ours
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."


# --- completion ---------------------------------------------------------------------------------------------------


class _Name(click.ParamType[str]):
    """A name of the cluster: completed, but not checked."""

    def __init__(self, name: str, known: Callable[[KafkaAdminClient], list[str]]) -> None:
        self.name = name
        self._known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        given = ctx.params
        try:
            settings = _settings(
                given.get("bootstrap"),
                given.get("command_config"),
                given.get("properties") or (),
                given.get("profile"),
            )
        except Exception:
            return []
        settings |= {"bootstrap.timeout.ms": COMPLETION_TIMEOUT_MS, "default.api.timeout.ms": COMPLETION_TIMEOUT_MS}
        named = ctx.params.get(param.name or "") or ()
        taken = set(named) if isinstance(named, tuple) else set()
        try:
            with connected(settings) as admin:
                names = self._known(admin)
        except Exception:
            return []  # the shell asked while a line is typed: no names, and nothing printed into the line
        return [
            CompletionItem(name)
            for name in sorted(names)
            if name.startswith(incomplete) and name not in taken and name == printable(name, one_line=True)
        ]


TOPIC = _Name("topic", lambda admin: [topic for topic in admin.list_topics() if not topic.startswith("__")])
GROUP = _Name("group", lambda admin: [group["group_id"] for group in admin.list_groups()])
