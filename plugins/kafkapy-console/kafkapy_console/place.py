"""Where a page is: in a cluster, or before all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkapy_console.errors import ForbiddenError
from kafkapy_console.security.audit import Audit
from kafkapy_console.security.people import People
from kafkapy_console.services.looks import Looks
from kafkapy_console.settings import Settings

if TYPE_CHECKING:
    from kafkapy_console.console import Console
    from kafkapy_console.records.registry import Registry
    from kafkapy_console.services.rest_services import ConnectCluster

__all__ = ["Home", "Place"]


class Place:
    """What every page needs: settings, people, the audit log, the beginning of its addresses."""

    registry: Registry | None = None
    connect: Mapping[str, ConnectCluster] = {}

    def __init__(self, settings: Settings, people: People, audit: Audit, cluster: str = "") -> None:
        self.settings = settings
        self.people = people
        self.audit = audit
        self.cluster = cluster
        """The name of the cluster in addresses; "" before the clusters, and where the console has one only."""
        self.root = f"/{cluster}" if cluster else ""
        self.all_clusters: Sequence[Console] = ()
        """All clusters of a console that has several."""

    @property
    def title(self) -> str:
        """The name on each page."""
        return self.settings.name or "all clusters"

    def check_may_change(self) -> None:
        """ForbiddenError in a read-only console."""
        if self.settings.read_only:
            raise ForbiddenError("This console is read-only: it changes nothing.")


class Home(Place):
    """The place before several clusters: logins, and the list of clusters."""

    def __init__(self, settings: Settings, people: People, audit: Audit) -> None:
        super().__init__(settings, people, audit)
        self.looks = Looks()
