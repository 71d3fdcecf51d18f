"""A broker: its configuration, its log directories, the versions of its APIs; changes of dynamic keys."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kafkapy.admin import AlterConfigOp, ConfigResource
from kafkapy.errors import KafkaError
from kafkapy_console.console import number
from kafkapy_console.errors import BadInputError, NotFoundError
from kafkapy_console.services.clients import Clients
from kafkapy_console.services.looks import described_cluster
from kafkapy_console.services.topics import described
from kafkapy_console.settings import Level
from kafkapy_console.web import Form, Visit, action, page

__all__ = ["ROUTES", "alter", "config_rows"]

DYNAMIC_SOURCES = ("DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG", "DYNAMIC_TOPIC_CONFIG")


def config_rows(configs: dict[str, dict[str, Any]], search: str, only_set: bool) -> list[dict[str, Any]]:
    """The keys of a page: all, or those that a person looks for."""
    rows = []
    for name, each in configs.items():
        text = search.lower()
        if text and text not in name.lower() and text not in (each.get("documentation") or "").lower():
            continue
        if only_set and each["config_source"] == "DEFAULT_CONFIG":
            continue
        rows.append({"name": name, **each})
    return rows


async def broker(visit: Visit) -> Response:
    """One broker."""
    visit.require(Level.VIEWER)
    broker_id = number(visit.path("broker"), "Broker", 0, 2**31 - 1)
    found = next((e for e in (await described_cluster(visit.clients))["brokers"] if e["broker_id"] == broker_id), None)
    if found is None:
        raise NotFoundError(f"Broker {broker_id} is not in the cluster now.")
    search, only_set = visit.query.text("q"), "set" in visit.query
    configs = await described(visit.clients, "broker", str(broker_id))
    template = "fragments/configs.html" if visit.is_fragment else "broker.html"
    return visit.render(
        template,
        broker=found,
        rows=config_rows(configs, search, only_set),
        total=len(configs),
        q=search,
        only_set=only_set,
        base=f"{visit.place.root}/brokers/{broker_id}",
        editable=visit.can(Level.ADMIN),
    )


async def log_dirs(visit: Visit) -> Response:
    """The log directories of a broker with their largest replicas."""
    visit.require(Level.VIEWER)
    broker_id = number(visit.path("broker"), "Broker", 0, 2**31 - 1)
    (found,) = await (await visit.clients.admin()).describe_log_dirs(brokers=[broker_id])
    dirs = []
    for each in found["log_dirs"]:
        replicas = [
            (partition["partition_size"], f"{topic['name']}-{partition['partition_index']}", partition)
            for topic in each["topics"]
            for partition in topic["partitions"]
        ]
        replicas.sort(key=lambda replica: (-replica[0], replica[1]))
        dirs.append(
            {
                **each,
                "replicas": replicas[:50],
                "count": len(replicas),
                "used": sum(size for size, _, _ in replicas),
                "moving": sum(partition["is_future_key"] for _, _, partition in replicas),
            }
        )
    return visit.render("log_dirs.html", broker_id=broker_id, dirs=dirs)


async def versions(visit: Visit) -> Response:
    """The versions of the APIs that a broker serves."""
    visit.require(Level.VIEWER)
    broker_id = number(visit.path("broker"), "Broker", 0, 2**31 - 1)
    found = await (await visit.clients.admin()).api_versions(broker_id)
    rows = [(int(key), getattr(key, "name", "unknown"), low, high) for key, (low, high) in sorted(found.items())]
    return visit.render("versions.html", broker_id=broker_id, rows=rows)


async def edit(visit: Visit) -> Response:
    """The form for one key, with its documentation and the sources of its value."""
    visit.require(Level.ADMIN)
    broker_id, key = visit.path("broker"), visit.path("key")
    number(broker_id, "Broker", 0, 2**31 - 1)
    return await edit_page(visit, "broker", broker_id, key, f"/brokers/{broker_id}", f"broker {broker_id}")


async def edit_page(visit: Visit, kind: str, name: str, key: str, back: str, about: str) -> Response:
    """The form for one key of a resource."""
    configs = await described(visit.clients, kind, name)
    if key not in configs:
        raise NotFoundError(f"{about.capitalize()} has no key {key}.")
    return visit.render(
        "config_edit.html",
        key=key,
        config=configs[key],
        back=visit.place.root + back,
        about=about,
        action=f"{visit.place.root}{back}/configs/{key}",
        is_set=configs[key]["config_source"] in DYNAMIC_SOURCES,
        is_broker=kind == "broker",
    )


async def save(visit: Visit, form: Form) -> Response:
    """Set or reset one key, on this broker or as the default of all brokers."""
    visit.require(Level.ADMIN)
    broker_id = str(number(visit.path("broker"), "Broker", 0, 2**31 - 1))
    target = "" if form.text("scope") == "all" else broker_id
    await alter(visit, form, "broker", target, visit.path("key"))
    return visit.redirect(f"/brokers/{broker_id}?q={visit.path('key')}")


async def alter(visit: Visit, form: Form, kind: str, name: str, key: str) -> None:
    """Carry out one change, checked by the broker first. Values of secret keys are not in the audit log."""
    reset = form.choice("operation", ("set", "reset")) == "reset"
    value = form.raw("value").strip()
    if not reset and "value" not in form:
        raise BadInputError("A value is needed.")
    change: tuple[AlterConfigOp, str | None] = (AlterConfigOp.DELETE, None) if reset else (AlterConfigOp.SET, value)
    await altered(visit.clients, kind, name, {key: change})
    secret = any(word in key for word in ("password", "secret", "jaas"))
    about = f"{kind} {name or 'defaults'}"
    visit.audit(
        "reset configuration" if reset else "set configuration", about, key=key, value="•••" if secret else value
    )
    visit.flash(f"{key} of {about} is {'reset' if reset else 'set'}.")


async def altered(clients: Clients, kind: str, name: str, changes: dict[str, tuple[AlterConfigOp, str | None]]) -> None:
    """Validate, then apply. KafkaError and BadInputError with the broker's words."""
    admin = await clients.admin()
    for validate_only in (True, False):
        outcome = await admin.alter_configs([ConfigResource(kind, name, changes)], validate_only)
        text = outcome[kind][name]
        if text != "OK":
            raise BadInputError(f"The broker refuses the change: {text}")


async def log_level(visit: Visit) -> Response:
    """The loggers of a broker and their levels."""
    visit.require(Level.VIEWER)
    broker_id = str(number(visit.path("broker"), "Broker", 0, 2**31 - 1))
    try:
        configs = await described(visit.clients, "broker_logger", broker_id)
    except KafkaError as error:
        raise NotFoundError(f"This broker does not tell its loggers: {error}") from None
    return visit.render("loggers.html", broker_id=broker_id, rows=config_rows(configs, "", False))


async def set_log_level(visit: Visit, form: Form) -> Response:
    """Set the level of one logger until the broker ends."""
    visit.require(Level.ADMIN)
    broker_id = str(number(visit.path("broker"), "Broker", 0, 2**31 - 1))
    level = form.choice("level", ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"))
    name = form.needed("logger")
    await altered(visit.clients, "broker_logger", broker_id, {name: (AlterConfigOp.SET, level)})
    visit.audit("set log level", f"broker {broker_id}", logger=name, level=level)
    visit.flash(f"Logger {name} of broker {broker_id} writes from {level} on.")
    return visit.redirect(f"/brokers/{broker_id}/loggers")


ROUTES = [
    page("/brokers/{broker}", broker),
    page("/brokers/{broker}/log-dirs", log_dirs),
    page("/brokers/{broker}/versions", versions),
    page("/brokers/{broker}/loggers", log_level),
    page("/brokers/{broker}/configs/{key:path}", edit, Level.ADMIN),
    action("/brokers/{broker}/configs/{key:path}", save, Level.ADMIN, form_page=edit),
    action("/brokers/{broker}/loggers", set_log_level, Level.ADMIN),
]
