"""Kafka Connect by its REST API, and metrics by Prometheus' text format."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from kafkapy_console.records.registry import address_part, rest
from kafkapy_console.services.cache import Cache

__all__ = ["ConnectCluster", "Metrics"]

SECRET = re.compile(r"(password|secret|token|credential|\.key$|jaas|apikey|api\.key)", re.IGNORECASE)
METRICS_S = 1.5
MOST_METRICS_BYTES = 32 << 20


class ConnectCluster:
    """One cluster of Kafka Connect."""

    def __init__(self, http: httpx.AsyncClient, name: str, url: str, auth: tuple[str, str] | None) -> None:
        self.name = name
        self.url = url
        self._http = http
        self._auth = auth

    async def _ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        return await rest(
            self._http,
            f"Connect cluster {self.name}",
            method,
            self.url + path,
            auth=self._auth,
            body=body,
            params=query,
        )

    async def about(self) -> Mapping[str, Any]:
        """The version of Connect and the id of its Kafka cluster."""
        found: Mapping[str, Any] = await self._ask("GET", "/")
        return found

    async def connectors(self) -> dict[str, Any]:
        """Configuration and status of all connectors, by one request."""
        found = await self._ask("GET", "/connectors?expand=info&expand=status")
        return dict(sorted(found.items()))

    async def connector(self, name: str) -> dict[str, Any]:
        """Configuration, status and topics of one connector."""
        path = f"/connectors/{address_part(name)}"
        info, status = await asyncio.gather(self._ask("GET", path), self._ask("GET", f"{path}/status"))
        topics: list[str] = []
        try:
            topics = (await self._ask("GET", f"{path}/topics"))[name]["topics"]
        except Exception:
            topics = []  # Connect before Kafka 2.5
        return {"info": info, "status": status, "topics": sorted(topics)}

    async def plugins(self) -> list[Mapping[str, Any]]:
        """The installed kinds of connectors."""
        found: list[Mapping[str, Any]] = await self._ask("GET", "/connector-plugins")
        return found

    async def validate(self, kind: str, config: Mapping[str, str]) -> list[str]:
        """The errors of a configuration, as Connect sees them."""
        found = await self._ask("PUT", f"/connector-plugins/{address_part(kind)}/config/validate", dict(config))
        return [
            f"{each['value']['name']}: {error}"
            for each in found.get("configs") or ()
            for error in each["value"].get("errors") or ()
        ]

    async def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Creates a connector, or changes its configuration."""
        await self._ask("PUT", f"/connectors/{address_part(name)}/config", dict(config))

    async def act(self, name: str, action: str) -> None:
        """pause, resume, stop or restart a connector; restart takes its tasks, too."""
        path = f"/connectors/{address_part(name)}/{action}"
        if action == "restart":
            await self._ask("POST", path, includeTasks="true", onlyFailed="false")
        else:
            await self._ask("PUT", path)

    async def restart_task(self, name: str, task: int) -> None:
        """Restarts one task."""
        await self._ask("POST", f"/connectors/{address_part(name)}/tasks/{task}/restart")

    async def delete(self, name: str) -> None:
        """Deletes a connector; its offsets stay."""
        await self._ask("DELETE", f"/connectors/{address_part(name)}")


def without_secrets(config: Mapping[str, str]) -> dict[str, str]:
    """A connector's configuration for a page: values of secrets are hidden, references to providers are not."""
    return {
        name: "••••" if SECRET.search(name) and not str(value).startswith("${") else value
        for name, value in sorted(config.items())
    }


FAMILY = "kafka_server_brokertopicmetrics"
NAMES: Mapping[str, Sequence[str]] = {
    "messages in": (f"{FAMILY}_messagesin_total", f"{FAMILY}_messagesinpersec_count"),
    "bytes in": (f"{FAMILY}_bytesin_total", f"{FAMILY}_bytesinpersec_count"),
    "bytes out": (f"{FAMILY}_bytesout_total", f"{FAMILY}_bytesoutpersec_count"),
}
"""Counters of the charts, under their names in kafkapy and of the JMX exporter; compared in lower case."""


class Metrics:
    """Counters summed over the metrics endpoints of the brokers."""

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[str]) -> None:
        self._http = http
        self._urls = urls
        self._cache = Cache()

    @property
    def known(self) -> bool:
        """Whether endpoints are configured."""
        return bool(self._urls)

    async def counters(self) -> dict[str, Any]:
        """{"time": seconds, "values": {name: total}, "away": number of endpoints without an answer}."""
        return await self._cache.get("counters", METRICS_S, self._read)

    async def _read(self) -> dict[str, Any]:
        texts = await asyncio.gather(*map(self._text, self._urls))
        values: dict[str, float] = {}
        for text in texts:
            if text is not None:
                for name, value in await asyncio.to_thread(summed, text):
                    values[name] = values.get(name, 0.0) + value
        return {"time": time.time(), "values": values, "away": sum(text is None for text in texts)}

    async def _text(self, url: str) -> str | None:
        try:
            response = await self._http.get(url)
        except httpx.HTTPError:
            return None
        if response.status_code != 200 or len(response.content) > MOST_METRICS_BYTES:
            return None
        return response.text


def summed(text: str) -> list[tuple[str, float]]:
    """The totals of the charts' counters in one endpoint's text.

    Series by topic and the series of all topics exist side by side: the one without a topic wins where it exists.
    """
    wanted = {alias: name for name, aliases in NAMES.items() for alias in aliases}
    whole: dict[str, float] = {}
    by_topic: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = wanted.get(sample.name.lower())
                if name is not None:
                    into = by_topic if sample.labels.get("topic") else whole
                    into[name] = into.get(name, 0.0) + sample.value
    except ValueError:
        return []
    return list((by_topic | whole).items())
