"""Changes of topics. A destructive one has a page before it that says what it will do."""

from __future__ import annotations

import re

from starlette.responses import Response

from kafkapy.admin import NewTopic
from kafkapy.types import MAX_TOPIC_NAME_LENGTH, TopicPartition
from kafkapy_console.console import number
from kafkapy_console.errors import BadInputError
from kafkapy_console.pages.brokers import alter
from kafkapy_console.pages.topics import edit_config, topic_of
from kafkapy_console.services.copies import copy_records, create_like, own_configs
from kafkapy_console.services.groups import Groups
from kafkapy_console.services.jobs import Job
from kafkapy_console.services.looks import described_cluster
from kafkapy_console.services.topics import Topics, described
from kafkapy_console.settings import Level
from kafkapy_console.text import url_part
from kafkapy_console.times import parse_time
from kafkapy_console.web import Form, Visit, action, page

__all__ = ["ROUTES"]

NAME = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
MOST_PARTITIONS = 10_000
DELETE_WAYS = ("all", "offset", "time")
MOST_GROUPS = 500
"""Groups whose offsets are looked at before a topic is deleted."""


def checked_name(name: str) -> str:
    """A name that Kafka allows for a topic. BadInputError."""
    if not NAME.match(name) or name in (".", ".."):
        raise BadInputError(
            f"{name[:60]!r} is no name of a topic: up to {MAX_TOPIC_NAME_LENGTH} letters, digits, dots, _ and -."
        )
    return name


def parsed_configs(text: str) -> dict[str, str]:
    """Keys of lines key=value. BadInputError."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise BadInputError(f"{line[:80]!r} is not key=value.")
        found[key.strip()] = value.strip()
    return found


# --- create, grow, configure --------------------------------------------------------------------------------------


async def create_form(visit: Visit) -> Response:
    """The form for a new topic."""
    brokers = len((await described_cluster(visit.clients))["brokers"])
    return visit.render("topic_create.html", brokers=brokers)


async def create(visit: Visit, form: Form) -> Response:
    """Validate at the broker, then create."""
    name = checked_name(form.needed("name"))
    visit.require(Level.EDITOR, name)
    partitions = number(form.text("partitions"), "Partitions", 1, MOST_PARTITIONS, -1)
    replicas = number(form.text("replicas"), "Replicas", 1, 100, -1)
    configs = parsed_configs(form.raw("configs"))
    for key in ("cleanup.policy", "retention.ms", "min.insync.replicas"):
        if value := form.text(key):
            configs.setdefault(key, value)
    admin = await visit.clients.admin()
    topic = NewTopic(name, partitions, replicas, None, dict(configs))
    await admin.create_topics([topic], validate_only=True)
    await admin.create_topics([topic], wait_for_metadata=True)
    Topics(visit.clients).changed()
    visit.audit("create topic", name, partitions=partitions, replicas=replicas, configs=configs)
    visit.flash(f"Topic {name} is created.")
    return visit.redirect(f"/topics/{url_part(name)}")


async def save_config(visit: Visit, form: Form) -> Response:
    """Set or reset one key."""
    name = visit.path("topic")
    visit.require(Level.EDITOR, name)
    await alter(visit, form, "topic", name, visit.path("key"))
    return visit.redirect(f"/topics/{url_part(name)}/configs?q={visit.path('key')}")


async def grow_form(visit: Visit) -> Response:
    """The form for more partitions, and what they mean for keys."""
    found = await topic_of(visit, Level.EDITOR)
    return visit.render("topic_grow.html", tab="", topic=found)


async def grow(visit: Visit, form: Form) -> Response:
    """Add partitions."""
    found = await topic_of(visit, Level.EDITOR)
    now = len(found.partitions)
    total = number(form.text("partitions"), "Partitions", now + 1, MOST_PARTITIONS)
    admin = await visit.clients.admin()
    await admin.create_partitions({found.name: total}, validate_only=True)
    await admin.create_partitions({found.name: total})
    Topics(visit.clients).changed()
    visit.audit("grow topic", found.name, before=now, after=total)
    visit.flash(f"Topic {found.name} has {total} partitions; it had {now}.")
    return visit.redirect(f"/topics/{url_part(found.name)}")


# --- delete a topic -----------------------------------------------------------------------------------------------


async def delete_form(visit: Visit) -> Response:
    """What the deletion of a topic takes with it: records, bytes, groups."""
    found = await topic_of(visit, Level.ADMIN)
    service = Topics(visit.clients)
    offsets = await service.offsets([found])
    sizes = await service.sizes()
    groups = Groups(visit.clients)
    known = list((await groups.all()).values())
    listed = known[:MOST_GROUPS]
    readers = [group for group in await groups.described(listed, with_begin=False) if found.name in group.topics]
    return visit.render(
        "topic_delete.html",
        tab="",
        topic=found,
        count=offsets.count(found.keys),
        size=sizes.get(found.name),
        readers=readers,
        active=[group for group in readers if group.members],
        unseen=len(known) - len(listed),
    )


async def delete(visit: Visit, form: Form) -> Response:
    """Delete a topic whose name was typed."""
    found = await topic_of(visit, Level.ADMIN)
    if form.text("name") != found.name:
        raise BadInputError(f"Type the name of the topic to delete it: {found.name}.")
    if found.id and form.text("topic_id") not in ("", found.id):
        raise BadInputError("The topic was deleted and created again meanwhile. Look at the new one first.")
    await (await visit.clients.admin()).delete_topics([found.name])
    Topics(visit.clients).changed()
    visit.audit("delete topic", found.name, partitions=len(found.partitions), count=form.text("count"))
    visit.flash(f"Topic {found.name} is deleted.")
    return visit.redirect("/topics")


# --- delete records -----------------------------------------------------------------------------------------------


async def records_form(visit: Visit) -> Response:
    """Choose the records to delete; with a choice, the preview: offsets before and after, records affected."""
    found = await topic_of(visit, Level.EDITOR)
    way = visit.query.text("way")
    if way not in DELETE_WAYS:
        return visit.render(
            "records_delete.html", tab="", topic=found, rows=None, way="all", at="", total=0, partition=""
        )
    service = Topics(visit.clients)
    chosen = {int(each) for each in visit.query.all("partition") if each.isdecimal()}
    partitions = [each for each in found.keys if not chosen or each.partition in chosen]
    offsets = await service.offsets_of(partitions)
    at = visit.query.text("at")
    targets = dict(offsets.end)
    if way == "offset":
        wanted = number(at, "Offset", 0, 2**63 - 1)
        targets = dict.fromkeys(partitions, wanted)
    elif way == "time":
        times = await (await visit.clients.admin()).list_partition_offsets(dict.fromkeys(partitions, parse_time(at)))
        targets = {each: times[each].offset if times[each].offset >= 0 else offsets.end[each] for each in partitions}
    rows = []
    for each in partitions:
        begin, end = offsets.begin[each], offsets.end[each]
        target = min(max(targets[each], begin), end)
        rows.append({"partition": each, "begin": begin, "end": end, "target": target, "gone": target - begin})
    return visit.render(
        "records_delete.html",
        tab="",
        topic=found,
        rows=rows,
        way=way,
        at=at,
        partition=visit.query.text("partition"),
        total=sum(row["gone"] for row in rows),
        compacted="compact" in (await service.configs(found.name)).get("cleanup.policy", {}).get("value", ""),
    )


async def delete_records(visit: Visit, form: Form) -> Response:
    """Delete the records below the offsets that the preview showed."""
    found = await topic_of(visit, Level.EDITOR)
    if found.id and form.text("topic_id") != str(found.id):
        raise BadInputError("The topic was deleted and created again meanwhile. Look at the new one first.")
    begins: dict[TopicPartition, int] = {}
    wanted: dict[TopicPartition, int] = {}
    for text in form.all("target"):
        partition, begin, offset = [*text.split(":"), "", ""][:3]
        key = TopicPartition(found.name, number(partition, "Partition", 0, 2**31 - 1))
        begins[key], wanted[key] = number(begin, "Offset", 0, 2**63 - 1), number(offset, "Offset", 0, 2**63 - 1)
    if not wanted:
        raise BadInputError("The preview has no records to delete.")
    if form.text("confirmed") != "yes":
        raise BadInputError("The deletion is not confirmed.")
    if (await Topics(visit.clients).offsets_of(list(wanted))).begin != begins:
        raise BadInputError("The first offsets have changed since the preview. Look at it again.")
    outcome = await (await visit.clients.admin()).delete_records(wanted)
    Topics(visit.clients).changed()
    visit.audit("delete records", found.name, after={str(key.partition): each for key, each in wanted.items()})
    lowest = ", ".join(f"{key.partition}: {each['low_watermark']:,}" for key, each in sorted(outcome.items())[:8])
    visit.flash(f"Records of {found.name} are deleted. First offsets now: {lowest}{' …' if len(outcome) > 8 else ''}")
    return visit.redirect(f"/topics/{url_part(found.name)}")


# --- copy ---------------------------------------------------------------------------------------------------------


async def copy_form(visit: Visit) -> Response:
    """The form for a copy of a topic."""
    found = await topic_of(visit)
    service = Topics(visit.clients)
    configs = own_configs(await service.configs(found.name))
    count = (await service.offsets([found])).count(found.keys)
    return visit.render("topic_copy.html", tab="", topic=found, configs=configs, count=count)


async def copy(visit: Visit, form: Form) -> Response:
    """Create the topic, and copy records in the background where that is wanted."""
    found = await topic_of(visit)
    name = checked_name(form.needed("name"))
    visit.require(Level.EDITOR, name)
    if visit.console.masks.covers(found.name):
        visit.require(Level.ADMIN)
    clients = visit.clients
    configs = own_configs(await described(clients, "topic", found.name)) if form.text("configs") else {}
    await create_like(clients, found, name, configs)
    Topics(clients).changed()
    visit.audit("copy topic", found.name, target=name, records=bool(form.text("records")))
    if not form.text("records"):
        visit.flash(f"Topic {name} is created like {found.name}, without records.")
        return visit.redirect(f"/topics/{url_part(name)}")

    async def work(job: Job) -> None:
        await copy_records(clients, found, name, job)

    visit.console.jobs.begin(f"Copy {found.name} to {name}", visit.session.user, (found.name, name), work)
    visit.flash(f"Topic {name} is created; records of {found.name} are copied to it.")
    return visit.redirect("/jobs")


async def elect(visit: Visit, form: Form) -> Response:
    """Make the first replicas the leaders again."""
    del form
    found = await topic_of(visit, Level.ADMIN)
    await (await visit.clients.admin()).elect_leaders("preferred", {found.name: found.numbers})
    Topics(visit.clients).changed()
    visit.audit("elect preferred leaders", found.name)
    visit.flash(f"The preferred replicas of {found.name} lead, where they are in sync.")
    return visit.redirect(f"/topics/{url_part(found.name)}")


ROUTES = [
    # A topic may be named "create", so the form has an address outside of /topics.
    page("/create-topic", create_form, Level.EDITOR),
    action("/create-topic", create, form_page=create_form),
    action("/topics/{topic}/configs/{key}", save_config, form_page=edit_config),
    page("/topics/{topic}/grow", grow_form, Level.EDITOR),
    action("/topics/{topic}/grow", grow, form_page=grow_form),
    page("/topics/{topic}/delete", delete_form, Level.ADMIN),
    action("/topics/{topic}/delete", delete, Level.ADMIN),
    page("/topics/{topic}/delete-records", records_form, Level.EDITOR),
    action("/topics/{topic}/delete-records", delete_records),
    page("/topics/{topic}/copy", copy_form),
    action("/topics/{topic}/copy", copy, form_page=copy_form),
    action("/topics/{topic}/elect", elect, Level.ADMIN),
]
