"""Many people and many searches at a time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from console_site import Person


def test_fifty_people_at_once(site: str, topic: Callable[..., str], send: Callable[..., None]) -> None:
    name = topic(3)
    for partition in range(3):
        send(name, [json.dumps({"n": number}).encode() for number in range(300)], partition)
    failures: list[str] = []
    paths = ("/", "/topics", f"/topics/{name}/records", "/groups", f"/topics/{name}")

    def visit(number: int) -> None:
        person = Person(site)
        try:
            for path in paths[number % 5 :] + paths[: number % 5]:
                person.get(path)
            if number % 10 == 0:
                events = person.events(f"/topics/{name}/search?filter=value.n%20%3D%3D%207")
                assert events[-1] == ("end", "The search is complete: 3 hits in 900 records.")
        except BaseException as error:
            failures.append(f"{number}: {error!r}")
        finally:
            person.close()

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert failures == []


def test_a_search_that_is_left_ends(person: Person, topic: Callable[..., str], send: Callable[..., None]) -> None:
    """The reader of a closed page goes away, and its place among the streams is free again."""
    name = topic()
    send(name, [b"x"] * 100)
    for _ in range(230):  # more than may run at the same time
        events = person.events(f"/topics/{name}/tail", most=1)
        assert events[0][0] == "begin", events
