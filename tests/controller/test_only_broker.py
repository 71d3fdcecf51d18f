"""Registration of a broker that must be alone in its cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkapy.controller.controller_store import ControllerStore, OtherBrokersError
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.znodes import BrokerRegistration, broker_path
from kafkapy.types import Endpoint


def registration(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", "h", 9092),))


def test_of_brokers_that_register_at_once_exactly_one_stays(tmp_path: Path) -> None:
    async def race() -> None:
        store = EmbeddedStore(tmp_path)
        await store.start()
        controllers = ControllerStore(store)
        await controllers.ensure_paths()
        made = await asyncio.gather(
            *(controllers.register_only_broker(registration(each)) for each in range(8)), return_exceptions=True
        )
        winners = [each for each in made if isinstance(each, BrokerRegistration)]
        losers = [each for each in made if isinstance(each, OtherBrokersError)]
        assert (len(winners), len(losers)) == (1, 7)
        assert list(await controllers.live_brokers()) == [winners[0].id]
        assert winners[0].epoch == (await store.get(broker_path(winners[0].id)))[1].created_transaction
        with pytest.raises(OtherBrokersError, match=f"^Broker {winners[0].id} .* broker 9 cannot join it"):
            await controllers.check_alone(9)
        await controllers.check_alone(winners[0].id)
        await store.close()

    asyncio.run(race())
