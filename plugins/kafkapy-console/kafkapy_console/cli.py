"""`kafkapy console`: serve the console; `kafkapy console --hash-password`: a password's hash for its settings file."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from kafkapy.tools.options import bootstrap_option, local_errors

__all__ = ["main"]

DEFAULT_BOOTSTRAP = "localhost:9092"


@click.command("console")
@bootstrap_option
@click.option(
    "--client-config",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="File with keys of Kafka's clients, one key=value per line.",
)
@click.option(
    "--settings",
    "settings_file",
    envvar="KAFKAPY_CONSOLE_SETTINGS",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="TOML file with the settings: one cluster or several, logins, roles, masks, schema registry, Connect.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port to listen on.")
@click.option("--host-name", "host_names", multiple=True, metavar="NAME", help="Host name that browsers may use.")
@click.option("--name", metavar="TEXT", help="Name of the cluster on each page.")
@click.option("--read-only", is_flag=True, default=None, help="Refuse each action that changes something.")
@click.option("--registry", metavar="URL", help="Address of a schema registry.")
@click.option("--connect", "connects", multiple=True, metavar="NAME=URL", help="A cluster of Kafka Connect.")
@click.option("--metrics", "metrics_urls", multiple=True, metavar="URL", help="Metrics endpoint of a broker.")
@click.option("--no-login", is_flag=True, help="Allow everybody who reaches the address, also from other machines.")
@click.option(
    "--certificate", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Certificate for TLS."
)
@click.option("--key", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Private key for TLS.")
@click.option("--verbose", "-v", is_flag=True, help="Print the log of console and clients on stderr.")
@click.option("--hash-password", is_flag=True, help="Ask for a password, print its hash, and end.")
@local_errors
def main(
    bootstrap: str | None,
    client_config: str | None,
    settings_file: Path | None,
    host: str,
    port: int,
    host_names: tuple[str, ...],
    name: str | None,
    read_only: bool | None,
    registry: str | None,
    connects: tuple[str, ...],
    metrics_urls: tuple[str, ...],
    no_login: bool,
    certificate: str | None,
    key: str | None,
    verbose: bool,
    hash_password: bool,
) -> None:
    """Serve a web console for a cluster, or for several.

    The console shows and changes topics, records, groups, transactions, users and schemas of kafkapy and of Apache
    Kafka. It listens on this machine only, unless the settings file has a login. A settings file may name several
    clusters: the first page lists them, and the addresses of a cluster's pages begin with its name.
    """
    if hash_password:
        from kafkapy_console.security.passwords import hashed

        click.echo(hashed(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)))
        return
    from kafkapy_console.server import check_exposure, listen, serve
    from kafkapy_console.settings import ConnectSettings, RegistrySettings, Settings

    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if not verbose:
        # The pages say what is wrong with the cluster; the log of its clients would repeat it.
        logging.getLogger("kafkapy.clients").setLevel(logging.ERROR)
    kafka = _client_keys(client_config, bootstrap, settings_file)
    settings = Settings(kafka=kafka) if settings_file is None else Settings.from_file(settings_file, kafka)
    if settings.clusters and (registry or connects or metrics_urls):
        raise click.UsageError(
            "The settings file names several clusters: it has their --registry, --connect, --metrics."
        )
    settings = settings.with_changes(
        read_only=read_only or None,
        name=name,
        hosts=(*settings.hosts, *host_names) or None,
        registry=None if registry is None else RegistrySettings(registry.rstrip("/")),
        connect=tuple(ConnectSettings(*_named_url(each)) for each in connects) or None,
        metrics_urls=metrics_urls or None,
        secure_cookies=True if certificate else None,
    )
    check_exposure(settings, [host], no_login)
    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key belong together.")
    try:
        bound = listen(host, port)
    except OSError as error:
        raise click.ClickException(f"{host}:{port} cannot be listened on: {error.strerror}.") from None
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if certificate else "http"
    note = " (read-only)" if settings.read_only else ""
    about = ", ".join(each.name for each in settings.clusters) or kafka_name(settings.kafka)
    click.echo(f"Console of {about}{note}: {scheme}://{shown}:{bound.getsockname()[1]}/", err=True)
    sys.stderr.flush()
    serve(settings, [bound], certificate, key)


def _client_keys(client_config: str | None, bootstrap: str | None, settings_file: Path | None) -> dict[str, object]:
    """Keys of the command line; they win over the settings file's."""
    from kafkapy.config.properties import load_properties

    keys: dict[str, object] = {}
    if client_config is not None:
        keys |= dict(load_properties(client_config))
    if bootstrap:
        keys["bootstrap.servers"] = bootstrap
    if not keys.get("bootstrap.servers") and settings_file is None:
        keys["bootstrap.servers"] = DEFAULT_BOOTSTRAP
    return keys


def _named_url(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals or not name or not url:
        raise click.UsageError(f"{text!r} is not NAME=URL.")
    return name, url.rstrip("/")


def kafka_name(keys: object) -> str:
    """The addresses of the brokers, for the first line."""
    return str(keys["bootstrap.servers"]) if isinstance(keys, dict) else "the cluster"


if __name__ == "__main__":
    main()
