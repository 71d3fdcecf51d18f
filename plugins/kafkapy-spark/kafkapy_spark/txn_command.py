"""kafkapy-spark txn: what exactly-once sinks have decided, and what was left behind."""

from __future__ import annotations

import re
from typing import Any

import click

from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.options import cluster_options, json_option, yes_option
from kafkapy.tools.output import Column, Output, time_text
from kafkapy_spark.task_ids import PATTERN

SINK_COLUMNS = (
    Column("sink"),
    Column("state", style="bold"),
    Column("query", quiet=True),
    Column("batch", right=True),
    Column("decided"),
    Column("tasks", right=True),
    Column("rows", right=True),
    Column("open_transactions", "open", right=True),
)
TRANSACTION_COLUMNS = (
    Column("transactional_id", "transactional id"),
    Column("producer_id", right=True),
    Column("producer_epoch", "epoch", right=True),
    Column("decided"),
)
TASK_ID = re.compile(f"(.+)-{PATTERN}", re.DOTALL)


@click.group("txn", cls=CommandGroup)
def txn() -> None:
    """Show and end transactions of exactly-once sinks."""


@txn.command("list")
@click.argument("sinks", nargs=-1, metavar="[SINK]...")
@json_option
@cluster_options
def list_(settings: dict[str, object], sinks: tuple[str, ...], as_json: bool) -> None:
    """List sinks with their last decision and their open transactions.

    A sink is `done` when all its decided batches are committed. It is `unfinished` when a decided batch is not fully
    committed (`commit`, or the query's next start, finishes it). It is `undecided` when it has open transactions of an
    undecided batch: its query runs, or has died (`abort`, or its next start, ends them).
    """
    from kafkapy_spark.sink_session import SinkSession

    with SinkSession(settings) as session:
        found = session.run(_sinks(session))
    unknown = sorted(set(sinks) - {each["sink"] for each in found})
    if unknown:
        raise click.ClickException(f"there is no sink {', '.join(unknown)}")
    rows = [each for each in found if not sinks or each["sink"] in sinks]
    output = Output(as_json)
    if as_json:
        output.json(rows)
        return
    output.rows([{**each, "open_transactions": len(each["open_transactions"])} for each in rows], SINK_COLUMNS)
    for each in rows:
        if sinks and each["open_transactions"]:
            output.heading(f"open transactions of {each['sink']}")
            output.rows(each["open_transactions"], TRANSACTION_COLUMNS)


@txn.command("commit")
@click.argument("sinks", nargs=-1, metavar="[SINK]...")
@click.option("--accept-loss", is_flag=True, help="Skip lost and unknown transactions.")
@json_option
@cluster_options
def commit(settings: dict[str, object], sinks: tuple[str, ...], accept_loss: bool, as_json: bool) -> None:
    """Finish the commit of decided batches of all sinks, or these.

    A batch stays unfinished when a driver dies amid its commit. The command does not harm running queries. The exit
    code is 1 when transactions are lost or unknown (their ids have expired, and the log has no answer), unless
    --accept-loss is given.
    """
    from kafkapy_spark.sink_session import SinkSession
    from kafkapy_spark.two_phase_commit import SinkDriver

    with SinkSession(settings) as session:
        states = session.run(_states(session))
        missing = sorted(set(sinks) - states.keys())
        if missing:
            raise click.ClickException(f"nothing was decided by the sink {', '.join(missing)}")
        rows = []
        for sink, state in states.items():
            if (sinks and sink not in sinks) or state.unfinished is None:
                continue
            outcome = session.run(SinkDriver(session.control, sink).finish(state.unfinished, accept_loss=accept_loss))
            lost, unknown = outcome.lost, outcome.unknown
            rows.append(
                {
                    "sink": sink,
                    "query": state.unfinished.query,
                    "batch": state.unfinished.batch,
                    "rows": state.unfinished.rows - sum(each.rows for each in [*lost, *unknown]),
                    "lost_partitions": [each.partition for each in lost],
                    "lost_rows": sum(each.rows for each in lost),
                    "unknown_partitions": [each.partition for each in unknown],
                    "unknown_rows": sum(each.rows for each in unknown),
                }
            )
    output = Output(as_json)
    columns = (*(Column(name) for name in ("sink", "batch", "rows", "lost_partitions", "unknown_partitions")),)
    if as_json or rows:
        output.rows(rows, columns)
    else:
        output.say("Nothing is unfinished.")
    if any(each["lost_partitions"] or each["unknown_partitions"] for each in rows) and not accept_loss:
        raise SystemExit(1)


@txn.command("abort")
@click.argument("sinks", nargs=-1, required=True, metavar="SINK...")
@yes_option
@json_option
@cluster_options
def abort(settings: dict[str, object], sinks: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Abort the open transactions of undecided batches of sinks.

    The command commits decided batches. A running query of such a sink fails, and writes the batch again at its next
    start.
    """
    from kafkapy_spark.sink_session import SinkSession
    from kafkapy_spark.two_phase_commit import SinkDriver

    if not yes:
        click.confirm(f"Abort transactions of {', '.join(sinks)}, and fail a query that runs there?", abort=True)
    rows = []
    with SinkSession(settings) as session:
        for sink in sinks:
            driver = SinkDriver(session.control, sink)
            before = session.run(driver.find_open())
            session.run(driver.take_over())
            after = session.run(driver.find_open())
            rows.append({"sink": sink, "ended": len(set(before) - set(after)), "open": len(after)})
    Output(as_json).rows(rows, (Column("sink"), Column("ended", right=True), Column("open", right=True)))
    if any(each["open"] for each in rows):
        raise SystemExit(1)


async def _states(session: Any) -> dict[str, Any]:
    """SinkState by sink."""
    from kafkapy.errors import UnknownTopicOrPartitionError

    try:
        await session.control.find()
    except UnknownTopicOrPartitionError:
        return {}
    found: dict[str, Any] = await session.control.read_all()
    return found


async def _sinks(session: Any) -> list[dict[str, Any]]:
    """Those that have decided anything, and those with a driver and open transactions."""
    states = await _states(session)
    listed = await session.client.list_transactions()
    drivers = {each.transactional_id for listings in listed.values() for each in listings}
    by_sink: dict[str, list[Any]] = {}
    for each in await session.client.find_open(TASK_ID):
        match = TASK_ID.fullmatch(each.transactional_id)
        assert match is not None
        if f"{match[1]}-driver" in drivers:
            by_sink.setdefault(match[1], []).append(each)
    return [_row(sink, states.get(sink), by_sink.get(sink, [])) for sink in sorted(states.keys() | by_sink.keys())]


def _row(sink: str, state: Any, found: list[Any]) -> dict[str, Any]:
    decision = None if state is None else state.decision
    decided = set() if decision is None else {each.transaction(sink) for each in decision.handles}
    unfinished = state is not None and state.unfinished is not None
    return {
        "sink": sink,
        "state": "unfinished" if unfinished else "undecided" if found else "done",
        "query": decision and decision.query,
        "batch": decision and decision.batch,
        "decided": decision and time_text(decision.time_ms),
        "tasks": decision and decision.tasks,
        "rows": decision and decision.rows,
        "open_transactions": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.state.producer_id,
                "producer_epoch": each.state.producer_epoch,
                "decided": each in decided,
            }
            for each in found
        ],
    }
