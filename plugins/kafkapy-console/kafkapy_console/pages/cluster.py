"""The first page: the cluster and its brokers; live numbers; jobs; the audit log; the features."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.responses import JSONResponse, Response

from kafkapy.errors import KafkaError
from kafkapy_console.console import number
from kafkapy_console.errors import ForbiddenError, NotFoundError
from kafkapy_console.services.groups import Groups
from kafkapy_console.services.jobs import Job
from kafkapy_console.services.looks import described_cluster
from kafkapy_console.services.topics import MOST_COUNTED, Topics
from kafkapy_console.settings import Level
from kafkapy_console.web import Form, Visit, action, page

__all__ = ["ROUTES"]


async def overview(visit: Visit) -> Response:
    """Brokers, counts, and what is wrong."""
    topics = Topics(visit.clients)
    cluster, all_topics = await asyncio.gather(described_cluster(visit.clients), topics.all())
    disks = await _disks(topics)
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in all_topics.values():
        for each in topic.partitions:
            leaders[each["leader_id"]] = leaders.get(each["leader_id"], 0) + 1
            for node in each["replica_nodes"]:
                replicas[node] = replicas.get(node, 0) + 1
    try:
        groups: int | None = len(await Groups(visit.clients).all())
    except KafkaError:
        groups = None
    shown = [topic for name, topic in all_topics.items() if visit.access.may(Level.VIEWER, name)]
    troubled = [topic for topic in shown if topic.under_replicated or topic.offline]
    seen = set(leaders) | set(replicas)
    known = {broker["broker_id"] for broker in cluster["brokers"]}
    return visit.render(
        "overview.html",
        cluster=cluster,
        topics=len(shown),
        partitions=sum(len(topic.partitions) for topic in shown),
        groups=groups,
        under=sum(topic.under_replicated for topic in shown),
        offline=sum(topic.offline for topic in shown),
        troubled=troubled[:20],
        troubled_count=len(troubled),
        missing=sorted(seen - known - {-1}),
        leaders=leaders,
        replicas=replicas,
        disks=disks,
        live=visit.console.metrics.known or sum(len(topic.partitions) for topic in shown) <= MOST_COUNTED,
    )


async def _disks(topics: Topics) -> dict[int, dict[str, int]]:
    """Used, total and usable bytes, and directories that are offline, by broker."""
    try:
        found = await topics.log_dirs()
    except KafkaError:
        return {}
    disks = {}
    for broker in found:
        dirs = broker["log_dirs"]
        disks[broker["broker"]] = {
            "used": sum(p["partition_size"] for d in dirs for t in d["topics"] for p in t["partitions"]),
            "total": sum(max(0, each["total_bytes"]) for each in dirs),
            "usable": sum(max(0, each["usable_bytes"]) for each in dirs),
            "offline": sum(bool(each["error_code"]) for each in dirs),
        }
    return disks


async def live(visit: Visit) -> Response:
    """Counters for the chart: of the metrics endpoints, or the sum of the ends of all logs."""
    if visit.console.metrics.known:
        return JSONResponse(await visit.console.metrics.counters())
    clients = visit.clients
    topics = Topics(clients)

    async def read() -> dict[str, Any]:
        shown = [topic for topic in (await topics.all()).values() if not topic.internal]
        if sum(len(topic.partitions) for topic in shown) > MOST_COUNTED:
            return {"time": time.time(), "values": {}, "away": 0}
        offsets = await topics.offsets(shown)
        return {"time": time.time(), "values": {"messages in": sum(offsets.end.values())}, "away": 0}

    return JSONResponse(await clients.cache.get("live", 1.5, read))


async def jobs(visit: Visit) -> Response:
    """Copies that run or ran."""
    template = "fragments/jobs.html" if visit.is_fragment else "jobs.html"
    return visit.render(template, jobs=[job for job in visit.console.jobs.newest if _may_see(visit, job)])


def _may_see(visit: Visit, job: Job) -> bool:
    if job.user == visit.session.user:
        return True
    # By Kafka's users alone the brokers decide, and each person sees what is theirs.
    return not visit.console.people.only_acls and all(visit.access.may(Level.VIEWER, name) for name in job.topics)


async def stop_job(visit: Visit, form: Form) -> Response:
    """End a copy; the records that it copied stay."""
    del form
    job = visit.console.jobs.find(number(visit.path("job"), "Job", 1, 10**9))
    if not _may_see(visit, job):
        raise NotFoundError(f"There is no job {job.id}.")
    if job.user != visit.session.user:
        visit.require(Level.ADMIN)
    visit.console.jobs.stop(job)
    visit.audit("stop job", job.title)
    return visit.redirect("/jobs")


async def audit(visit: Visit) -> Response:
    """The newest lines of the audit log."""
    visit.require(Level.ADMIN)
    if visit.console.people.only_acls:
        raise ForbiddenError("The audit log needs a role admin in the settings: no ACL guards it.")
    return visit.render("audit.html", lines=visit.console.audit.newest[:500])


async def features(visit: Visit) -> Response:
    """Levels of features, and the quorum of the controllers where there is one."""
    visit.require(Level.VIEWER)
    admin = await visit.clients.admin()
    found: dict[str, Any] = {}
    quorum: Any = None
    note = ""
    try:
        found = await admin.describe_features()
    except KafkaError as error:
        note = str(error)
    try:
        quorum = await admin.describe_metadata_quorum()
    except KafkaError:
        quorum = None
    return visit.render("features.html", features=found, quorum=quorum, note=note)


ROUTES = [
    page("/", overview),
    page("/live.json", live),
    page("/jobs", jobs),
    action("/jobs/{job}/stop", stop_job),
    page("/audit", audit, Level.ADMIN),
    page("/features", features),
]
