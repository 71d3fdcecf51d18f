"""What is done when records that should be read are not there any more: failOnDataLoss."""

from __future__ import annotations

import logging

from kafkapy.errors import IllegalStateError

logger = logging.getLogger("kafkapy.spark")

_WHY = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by "
    "Kafka or the topic may have been deleted before all the data in the topic was processed."
)
_TO_GO_ON = f'{_WHY} If you don\'t want your query to fail then, set the source option "failOnDataLoss" to "false".'
_TO_FAIL = f'{_WHY} If you want your query to fail then, set the source option "failOnDataLoss" to "true".'


class DataLossError(IllegalStateError):
    """Records that should be read are gone, and the query shall fail then (failOnDataLoss)."""


def report_data_loss(message: str, fail: bool) -> None:
    """DataLossError, or a warning where the query goes on."""
    if fail:
        raise DataLossError(f"{message}. {_TO_GO_ON}")
    logger.warning("%s. %s", message, _TO_FAIL)
