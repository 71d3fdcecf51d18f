"""The order of a controller's requests, which the network may change."""

from __future__ import annotations

from typing import Final

NO_EPOCH: Final = -1
"""The broker epoch of a request version without one."""
_NUMBERS: Final = 1 << 31
"""Correlation ids begin again at 0 after so many."""


class ControllerOrder:
    """The order of a controller's requests over all its connections.

    A controller that has lost a connection sends its request again over the next one and goes on; later the network may
    still deliver what was on its way in the lost one. Correlation ids grow over the connections of one controller, so
    they tell such a request: it would undo newer ones, or delete a topic that was created again. Owned by
    BrokerContext; used on the control loop.
    """

    def __init__(self) -> None:
        self._sender = (-1, NO_EPOCH, -1)
        self._latest = 0

    def is_late(self, controller_id: int, controller_epoch: int, broker_epoch: int, number: int) -> bool:
        """Whether a later request of that controller was served.

        If not, this one is the latest. Without a broker epoch nothing is known: a controller may begin to count again
        for each registration.
        """
        if broker_epoch == NO_EPOCH:
            return False
        sender = (controller_epoch, broker_epoch, controller_id)
        if sender[:2] < self._sender[:2]:
            return False  # its epochs refuse it
        if sender == self._sender and (self._latest - number) % _NUMBERS < _NUMBERS // 2:
            return True
        self._sender, self._latest = sender, number
        return False
