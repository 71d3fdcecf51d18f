"""IsrChangeNotification: leaders have changed ISRs in the store.

Source: processIsrChangeNotification.
"""

from __future__ import annotations

from typing import Final

from kafkapy.controller import notifications
from kafkapy.controller.controllership import Controllership
from kafkapy.metadata.znodes import ISR_CHANGES, decode_isr_change

NAME: Final = "IsrChangeNotification"
PATH: Final = ISR_CHANGES


async def run(controllership: Controllership) -> None:
    """Read the changed ISRs and tell all brokers' caches."""
    names, values = await notifications.read(controllership.store.store, PATH, decode_isr_change)
    known = controllership.context.leadership
    changed = list(dict.fromkeys(partition for value in values for partition in value if partition in known))
    controllership.context.leadership.update(await controllership.store.partition_states(changed))
    await controllership.batch.add_update_metadata(controllership.context.live_brokers, changed)
    await controllership.batch.send()
    await controllership.reassignments.isr_changed(changed)
    await notifications.remove(controllership.store.store, PATH, names)
