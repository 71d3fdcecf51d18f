"""The rooms of kafkapy/_speedups: which kernels one may cimport, and that cimports go in no circle."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPEEDUPS = ROOT / "kafkapy" / "_speedups"
CIMPORT = re.compile(r"^(?:from\s+kafkapy\._speedups\.([\w.]+)\s+cimport|cimport\s+kafkapy\._speedups\.([\w.]+))", re.M)

MAY_CIMPORT: dict[str, set[str]] = {
    "base": set(),
    "protocol": {"base"},
    "records": {"base"},
    "log": {"base", "records"},
    "share": {"base", "records"},
    "requests": {"base", "protocol", "records", "log", "share"},
    "network": {"base", "requests"},
    "clients": {"base", "protocol", "records"},
    "replica": {"base", "log", "clients"},
    "testing": {"base", "protocol", "records", "log", "share", "requests", "network", "clients", "replica"},
}
"""A room, and the rooms whose kernels it may cimport beside its own."""

CLIENT_ROOMS: dict[str, set[str]] = {
    "io": set(),
    "producer": {"io"},
    "consumer": {"io"},
    "arrow": {"io", "producer", "consumer"},
}
"""The same for the rooms of the clients."""

CONTRACT = {
    "apis",
    "authorization",
    "client_quotas",
    "data_plane",
    "fetch_session",
    "named_partitions",
    "partition_table",
    "request_header",
}
"""What all of `requests` shares. `apis` is the table of the APIs, above them all."""

ANSWERS = {"produce.answers", "fetch.conversion", "fetch.replicas", "fetch.state"}
"""What NetworkRequest may also name: the answers of Python to parked requests."""

PRIVATE = {"log.private": "log", "share.window": "share"}
"""Headers for the kernels of one room only."""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SPEEDUPS).with_suffix("").parts)


def cimports_of(text: str) -> set[str]:
    return {match[1] or match[2] for match in CIMPORT.finditer(text)}


def named_by(suffixes: Iterable[str]) -> dict[str, set[str]]:
    """Each kernel or header with the kernels and headers that it names."""
    found: dict[str, set[str]] = {}
    for suffix in suffixes:
        for path in SPEEDUPS.rglob(f"*{suffix}"):
            names = cimports_of(path.read_text(encoding="utf-8"))
            found.setdefault(module_of(path), set()).update(names - {module_of(path)})
    return found


NAMED = named_by((".pxd", ".pyx"))
EDGES = [(module, name) for module, names in sorted(NAMED.items()) for name in sorted(names)]


def room_of(module: str) -> str:
    return module.split(".")[0]


def circles(named: dict[str, set[str]]) -> set[frozenset[str]]:
    """Sets of modules each of which names, directly or through others, each other one."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(named.get(start, ()))
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += named.get(module, ())
        return seen

    reach = {module: reached(module) for module in named}
    return {
        frozenset(other for other in reach[module] if module in reach.get(other, ()))
        for module in named
        if module in reach[module]
    }


def test_every_kernel_lies_in_a_room() -> None:
    assert [path.name for path in SPEEDUPS.iterdir() if path.suffix in (".pyx", ".pxd", ".pyi")] == []
    rooms = {path.relative_to(SPEEDUPS).parts[0] for path in SPEEDUPS.rglob("*.pyx")}
    assert rooms == set(MAY_CIMPORT)


def test_the_architecture_page_shows_the_rooms() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` \| [^|]+ \| ([\w, ]*) ?\|$", text.partition("| room of")[2], re.M)
    shown = {room: set(names.replace(",", " ").split()) for room, names in rows}
    assert shown.pop("testing") == {"all"}
    assert shown == {room: rooms for room, rooms in MAY_CIMPORT.items() if room != "testing"}


def test_the_search_finds_cimports() -> None:
    assert len(EDGES) > 400
    assert cimports_of("from kafkapy._speedups.base.wire cimport (\n    Cursor,\n)\n") == {"base.wire"}
    assert cimports_of("cimport kafkapy._speedups.log.state\n") == {"log.state"}


def test_cimports_follow_the_rooms() -> None:
    wrong = [
        f"{module} cimports {name}"
        for module, name in EDGES
        if room_of(module) != room_of(name) and room_of(name) not in MAY_CIMPORT[room_of(module)]
    ]
    assert wrong == []


def test_clients_cimport_no_kernel_of_the_broker() -> None:
    """Through headers neither: a change of the log must not build the producer again."""
    broker = {"log", "requests", "network"}
    for module in NAMED:
        if room_of(module) == "clients":
            seen: set[str] = set()
            waiting = [module]
            while waiting:
                for name in NAMED.get(waiting.pop(), ()):
                    if name not in seen:
                        seen.add(name)
                        waiting.append(name)
            assert {name for name in seen if room_of(name) in broker} == set(), module


def test_rooms_of_the_clients_have_an_order() -> None:
    wrong = []
    for module, name in EDGES:
        if room_of(module) == room_of(name) == "clients":
            own, other = module.split(".")[1], name.split(".")[1]
            if own != other and other not in CLIENT_ROOMS[own]:
                wrong.append(f"{module} cimports {name}")
    assert wrong == []


def test_the_contract_of_requests_knows_no_single_request() -> None:
    wrong = []
    for module, name in EDGES:
        if room_of(module) != "requests" or module.split(".")[1] not in CONTRACT - {"apis"}:
            continue
        if room_of(name) == "requests" and name.split(".")[1] not in CONTRACT:
            wrong.append(f"{module} cimports {name}")
    assert wrong == []


def test_the_network_knows_requests_through_their_table() -> None:
    """An API that the data plane serves is a line in requests/apis.pyx; nothing in network/ names it."""
    wrong = []
    for module, name in EDGES:
        if room_of(module) == "network" and room_of(name) == "requests":
            known = name.removeprefix("requests.") in CONTRACT
            if not known and not (module == "network.network_request" and name.removeprefix("requests.") in ANSWERS):
                wrong.append(f"{module} cimports {name}")
    text = "".join(path.read_text(encoding="utf-8") for path in (SPEEDUPS / "network").glob("*.pyx"))
    assert wrong == []
    assert re.findall(r"\bAPI_(?:PRODUCE|FETCH)\b", text) == []


@pytest.mark.parametrize(("header", "room"), PRIVATE.items())
def test_private_headers_are_named_in_their_room_only(header: str, room: str) -> None:
    users = {module for module, name in EDGES if name == header}
    assert users
    assert {module for module in users if room_of(module) != room} == set()


def test_cimports_go_in_no_circle() -> None:
    """A header without a kernel is part of whoever names it, so it is no stop on the way."""
    kernels = {module_of(path) for path in SPEEDUPS.rglob("*.pyx")}
    assert circles(named_by([".pxd"])) == set()

    def through_headers(names: set[str], seen: frozenset[str] = frozenset()) -> set[str]:
        found: set[str] = set()
        for name in names - seen:
            found |= {name} if name in kernels else through_headers(NAMED.get(name, set()), seen | {name})
        return found

    named = {module: through_headers(NAMED[module]) - {module} for module in kernels if module in NAMED}
    assert circles(named) == set()


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {frozenset("abc")}
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == set()


def test_nothing_but_tests_and_benchmarks_imports_kernels_for_tests() -> None:
    pattern = re.compile(r"kafkapy\._speedups\.testing|from kafkapy\._speedups import .*\btesting\b")
    users = [
        str(path.relative_to(ROOT))
        for directory in ("kafkapy", "plugins")
        for path in (ROOT / directory).rglob("*.py*")
        if path.suffix in (".py", ".pyx", ".pxd", ".pyi")
        and SPEEDUPS / "testing" not in path.parents
        and "tests" not in path.parts
        and pattern.search(path.read_text(encoding="utf-8"))
    ]
    assert users == []
