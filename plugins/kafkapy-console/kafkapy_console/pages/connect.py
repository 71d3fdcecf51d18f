"""Kafka Connect: connectors, their tasks and configuration; pause, resume, stop, restart, change, delete."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.responses import Response

from kafkapy_console.console import number
from kafkapy_console.errors import BadInputError
from kafkapy_console.services.rest_services import SECRET, without_secrets
from kafkapy_console.settings import Level
from kafkapy_console.text import url_part
from kafkapy_console.web import Form, Visit, action, page

__all__ = ["ROUTES"]

ACTIONS = ("pause", "resume", "stop", "restart")
HIDDEN = "••••"


async def clusters(visit: Visit) -> Response:
    """All connectors of all Connect clusters."""
    every = list(visit.console.connect.values())
    answers = await asyncio.gather(*(each.connectors() for each in every), return_exceptions=True)
    rows: list[dict[str, Any]] = []
    for each, answer in zip(every, answers, strict=True):
        if isinstance(answer, BaseException):
            rows.append({"cluster": each.name, "url": each.url, "error": str(answer), "connectors": []})
        else:
            names = visit.access.visible(answer)
            connectors = [_row(name, answer[name]) for name in names]
            rows.append({"cluster": each.name, "url": each.url, "error": "", "connectors": connectors})
    return visit.render("connect.html", rows=rows)


def _row(name: str, about: dict[str, Any]) -> dict[str, Any]:
    status = about.get("status") or {}
    tasks = status.get("tasks") or []
    return {
        "name": name,
        "type": (about.get("info") or {}).get("type", ""),
        "kind": ((about.get("info") or {}).get("config") or {}).get("connector.class", ""),
        "state": (status.get("connector") or {}).get("state", "UNKNOWN"),
        "tasks": len(tasks),
        "failed": sum(task.get("state") == "FAILED" for task in tasks),
    }


async def connector(visit: Visit) -> Response:
    """One connector: tasks, topics, configuration."""
    cluster = visit.console.connect_cluster(visit.path("cluster"))
    name = visit.path("connector")
    visit.require(Level.VIEWER, name)
    found = await cluster.connector(name)
    return visit.render(
        "connector.html",
        cluster=cluster,
        name=name,
        found=found,
        config=without_secrets(found["info"]["config"]),
        actions=ACTIONS,
    )


async def create_form(visit: Visit) -> Response:
    """The form for a new connector, with the kinds that the cluster has."""
    cluster = visit.console.connect_cluster(visit.path("cluster"))
    return visit.render("connector_create.html", cluster=cluster, plugins=await cluster.plugins())


async def save(visit: Visit, form: Form) -> Response:
    """Validate, then create a connector or change it. Hidden secrets keep their values."""
    cluster = visit.console.connect_cluster(visit.path("cluster"))
    name = form.needed("name")
    visit.require(Level.EDITOR, name)
    try:
        config = json.loads(form.raw("config"))
    except ValueError as error:
        raise BadInputError(f"The configuration is no JSON: {error}") from None
    if not isinstance(config, dict) or "connector.class" not in config:
        raise BadInputError("The configuration must be an object with connector.class.")
    config = {str(key): str(value) for key, value in config.items()}
    hidden = [key for key, value in config.items() if value == HIDDEN and SECRET.search(key)]
    if hidden:
        before = (await cluster.connector(name))["info"]["config"]
        config |= {key: before[key] for key in hidden if key in before}
    problems = await cluster.validate(config["connector.class"].rpartition(".")[2], {"name": name, **config})
    if problems:
        raise BadInputError("Connect refuses the configuration: " + "; ".join(problems[:5]))
    await cluster.configure(name, config)
    visit.audit("configure connector", f"{cluster.name}/{name}", keys=sorted(config))
    visit.flash(f"Connector {name} is configured.")
    return visit.redirect(f"/connect/{url_part(cluster.name)}/{url_part(name)}")


async def act(visit: Visit, form: Form) -> Response:
    """Pause, resume, stop or restart a connector or restart a task."""
    cluster = visit.console.connect_cluster(visit.path("cluster"))
    name = visit.path("connector")
    visit.require(Level.EDITOR, name)
    if "task" in form:
        task = number(form.text("task"), "Task", 0, 100_000)
        await cluster.restart_task(name, task)
        what = f"restart task {task}"
    else:
        what = form.choice("what", ACTIONS)
        await cluster.act(name, what)
    visit.audit(f"{what} connector", f"{cluster.name}/{name}")
    visit.flash(f"Connect was asked to {what} of {name}." if "task" in what else f"Connect was asked to {what} {name}.")
    return visit.redirect(f"/connect/{url_part(cluster.name)}/{url_part(name)}")


async def delete(visit: Visit, form: Form) -> Response:
    """Delete a connector whose name was typed."""
    cluster = visit.console.connect_cluster(visit.path("cluster"))
    name = visit.path("connector")
    visit.require(Level.ADMIN, name)
    if form.text("name") != name:
        raise BadInputError(f"Type the name of the connector to delete it: {name}.")
    await cluster.delete(name)
    visit.audit("delete connector", f"{cluster.name}/{name}")
    visit.flash(f"Connector {name} is deleted. Its offsets stay.")
    return visit.redirect("/connect")


ROUTES = [
    page("/connect", clusters),
    page("/create-connector/{cluster}", create_form, Level.EDITOR),
    action("/create-connector/{cluster}", save, form_page=create_form),
    page("/connect/{cluster}/{connector}", connector),
    action("/connect/{cluster}/{connector}", act),
    action("/connect/{cluster}/{connector}/delete", delete, Level.ADMIN),
]
