"""Transactions: list, describe, hanging ones, abort."""

from __future__ import annotations

import time
from typing import Any

from starlette.responses import Response

from kafkapy.admin import AbortTransactionSpec, TransactionState
from kafkapy.errors import KafkaError
from kafkapy.types import TopicPartition
from kafkapy_console.console import number
from kafkapy_console.errors import BadInputError
from kafkapy_console.pages.topics import pages_of
from kafkapy_console.settings import Level
from kafkapy_console.text import url_part
from kafkapy_console.web import Form, Visit, action, page

__all__ = ["ROUTES"]

OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


async def transactions(visit: Visit) -> Response:
    """A page of transactional ids; their transactions are described for its rows only."""
    admin = await visit.clients.admin()
    search, only_open = visit.query.text("q"), "open" in visit.query
    listed = await admin.list_transactions()
    names = {each.transactional_id: (broker, each) for broker, rows in listed.items() for each in rows}
    chosen = [
        name
        for name in sorted(visit.access.visible(names))
        if search.lower() in name.lower() and (not only_open or names[name][1].state in OPEN)
    ]
    bounds = pages_of(visit, len(chosen))
    rows: list[dict[str, Any]] = []
    shown = chosen[bounds["start"] : bounds["end"]]
    described: dict[str, Any] = {}
    note = ""
    if shown:
        try:
            described = await admin.describe_transactions(shown)
        except KafkaError as error:
            note = f"Some transactions cannot be described: {error}"
    for name in shown:
        broker, listing = names[name]
        rows.append({"name": name, "broker": broker, "listing": listing, "about": described.get(name)})
    return visit.render(
        "transactions.html", rows=rows, q=search, only_open=only_open, note=note, now_ms=time.time() * 1000,
        open_states=OPEN, **bounds,
    )  # fmt: skip


async def transaction(visit: Visit) -> Response:
    """One transactional id."""
    name = visit.path("name")
    visit.require(Level.VIEWER, name)
    found = (await (await visit.clients.admin()).describe_transactions([name]))[name]
    return visit.render(
        "transaction.html", name=name, found=found, now_ms=time.time() * 1000, is_open=found.state in OPEN
    )


async def fence(visit: Visit, form: Form) -> Response:
    """Abort the open transaction of an id, and fence its producer."""
    name = visit.path("name")
    visit.require(Level.ADMIN, name)
    if form.text("name") != name:
        raise BadInputError(f"Type the transactional id to abort its transaction: {name}.")
    await (await visit.clients.admin()).terminate_transaction(name)
    visit.audit("abort transaction", name)
    visit.flash(f"The transaction of {name} is aborted; its producer is fenced.")
    return visit.redirect(f"/transactions/{url_part(name)}")


async def hanging(visit: Visit) -> Response:
    """Open transactions that no coordinator will end; looking for them asks all leaders."""
    visit.require(Level.VIEWER)
    minutes = number(visit.query.text("minutes"), "Minutes", 0, 100_000, 15)
    rows = None
    if "look" in visit.query:
        rows = await (await visit.clients.admin()).find_hanging_producers(max_transaction_timeout_ms=minutes * 60_000)
    return visit.render("hanging.html", rows=rows, minutes=minutes)


async def abort(visit: Visit, form: Form) -> Response:
    """Write the abort marker for a hanging transaction in one partition."""
    visit.require(Level.ADMIN)
    partition = TopicPartition(form.needed("topic"), number(form.text("partition"), "Partition", 0, 2**31 - 1))
    producer = number(form.text("producer"), "Producer id", 0, 2**63 - 1)
    epoch = number(form.text("epoch"), "Epoch", 0, 2**15 - 1)
    coordinator = number(form.text("coordinator_epoch"), "Coordinator epoch", -1, 2**31 - 1)
    await (await visit.clients.admin()).abort_transaction(AbortTransactionSpec(partition, producer, epoch, coordinator))
    visit.audit("abort hanging transaction", str(partition), producer=producer, epoch=epoch)
    visit.flash(f"The transaction of producer {producer} in {partition} is aborted.")
    return visit.redirect("/hanging-transactions?look=1")


ROUTES = [
    page("/transactions", transactions),
    page("/hanging-transactions", hanging),
    page("/transactions/{name}", transaction),
    action("/transactions/{name}/abort", fence, Level.ADMIN),
    action("/hanging-transactions/abort", abort, Level.ADMIN),
]
