"""High watermark and ISR of a real log against a model, in random histories of fetches, ISR changes and elections."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkapy._speedups.base.event_queue import FOLLOWER_CAUGHT_UP, EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.log.replication import Replication
from kafkapy.config.topic import LogConfig
from kafkapy.errors import NotEnoughReplicasError
from kafkapy.log.backends.memory import MemoryLogStorage
from kafkapy.records.batches import RecordBatchBuilder

OWN = 1
OTHERS = (2, 3, 4)
LAG_MS = 50
NEVER = -1


@dataclass
class Follower:
    """A follower as Kafka's Replica describes it."""

    end: int = -1
    start: int = -1
    leader_end: int = -1
    fetched_ms: int = NEVER
    caught_up_ms: int = NEVER
    broker_epoch: int = -1
    announced: bool = False


@dataclass
class Model:
    """Partition.scala's state of a leader, and the rules of its high watermark."""

    end: int = 0
    high_watermark: int = 0
    epoch: int = -1
    partition_epoch: int = 0
    epoch_start: int = 0
    leads: bool = False
    isr: set[int] = field(default_factory=set)
    maximal: set[int] = field(default_factory=set)
    followers: dict[int, Follower] = field(default_factory=dict)
    min_isr: int = 1
    now_ms: int = 1000
    live: set[int] = field(default_factory=lambda: set(OTHERS))
    events: list[int] = field(default_factory=list)

    def advance(self) -> None:
        if not self.leads or len(self.isr) < min(self.min_isr, 1 + len(self.followers)):
            return
        target = self.end
        for replica, each in self.followers.items():
            recently = each.caught_up_ms != NEVER and self.now_ms - each.caught_up_ms <= LAG_MS
            if replica in self.maximal or (recently and replica in self.live):
                target = min(target, each.end)
        self.high_watermark = max(self.high_watermark, target)

    def fetch(self, replica: int, end: int, start: int, leader_end: int, broker_epoch: int) -> None:
        if not self.leads or replica not in self.followers:
            return
        each = self.followers[replica]
        if end >= leader_end:
            each.caught_up_ms = max(each.caught_up_ms, self.now_ms)
        elif end >= each.leader_end:
            each.caught_up_ms = max(each.caught_up_ms, each.fetched_ms)
        each.end, each.start, each.broker_epoch = end, start, broker_epoch
        each.leader_end, each.fetched_ms = max(each.leader_end, leader_end), self.now_ms
        if replica not in self.maximal and not each.announced and end >= max(self.high_watermark, self.epoch_start):
            each.announced = True
            self.events.append(replica)
        self.advance()

    def lead(self, epoch: int, isr: set[int]) -> None:
        if not self.leads or epoch != self.epoch:
            self.epoch_start = self.end
            known: dict[int, Follower] = {}
        else:
            known = self.followers
        self.followers = {
            replica: known.get(replica, Follower(caught_up_ms=self.now_ms if replica in isr else NEVER))
            for replica in OTHERS
        }
        self.leads, self.epoch = True, epoch
        self.put(isr, isr)

    def put(self, isr: set[int], maximal: set[int]) -> None:
        self.isr, self.maximal = set(isr), set(maximal)
        for each in self.followers.values():
            each.announced = False
        self.advance()


isrs = st.sets(st.sampled_from(OTHERS)).map(lambda others: {OWN, *others})


class IsrMachine(RuleBasedStateMachine):
    @initialize(isr=isrs, min_isr=st.integers(1, 5))
    def begin(self, isr: set[int], min_isr: int) -> None:
        self.events = EventQueue()
        self.replication = Replication(LAG_MS)
        self.model = Model(min_isr=min_isr)
        self.replication.clock_ms = self.model.now_ms
        self.log = PartitionLog(
            "t",
            0,
            MemoryLogStorage("t-0"),
            LogConfig.create(overrides={"min.insync.replicas": str(min_isr)}),
            events=self.events,
        )
        self.log.use_replication(self.replication)
        self._lead(0, isr)

    def _lead(self, epoch: int, isr: set[int]) -> None:
        self.model.partition_epoch += 1
        self.log.become_leader(OWN, epoch, isr, (OWN, *OTHERS), partition_epoch=self.model.partition_epoch)
        self.model.lead(epoch, isr)

    # --- what happens -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.leads)
    @rule(count=st.integers(1, 4), acks_all=st.booleans())
    def append(self, count: int, acks_all: bool) -> None:
        builder = RecordBatchBuilder()
        for _ in range(count):
            builder.append(1_700_000_000_000, None, b"v")
        data = builder.build()
        too_few = acks_all and len(self.model.isr) < min(self.model.min_isr, 1 + len(OTHERS))
        try:
            self.log.append_as_leader(data, required_acks=-1 if acks_all else 1, api_version=9)
        except NotEnoughReplicasError:
            assert too_few
        else:
            assert not too_few
            self.model.end += count
            self.model.advance()

    @rule(
        replica=st.sampled_from((*OTHERS, 9)),
        behind=st.integers(-2, 6),
        read_before=st.integers(0, 3),
        start=st.integers(-1, 3),
        broker_epoch=st.integers(-1, 3),
    )
    def fetch(self, replica: int, behind: int, read_before: int, start: int, broker_epoch: int) -> None:
        end = max(self.model.end - behind, 0)
        leader_end = max(self.model.end - read_before, 0)
        self.log.follower_position(
            replica, end, log_start_offset=start, leader_end_offset=leader_end, broker_epoch=broker_epoch
        )
        self.model.fetch(replica, end, start, leader_end, broker_epoch)

    @rule(replica=st.sampled_from(OTHERS))
    def fetch_at_the_end(self, replica: int) -> None:
        self.log.follower_position(replica, self.model.end)
        self.model.fetch(replica, self.model.end, -1, self.model.end, -1)

    @rule(ms=st.integers(1, LAG_MS + 10))
    def time_passes(self, ms: int) -> None:
        self.model.now_ms += ms
        self.replication.clock_ms = self.model.now_ms

    @rule(live=st.sets(st.sampled_from(OTHERS)))
    def brokers_come_and_go(self, live: set[int]) -> None:
        self.replication.set_live_brokers(live)
        self.model.live = live

    @rule(isr=isrs, more=isrs, older=st.booleans(), other_epoch=st.booleans())
    def set_isr(self, isr: set[int], more: set[int], older: bool, other_epoch: bool) -> None:
        """A commit, a pending change or its end; also one that comes too late."""
        epoch = self.model.partition_epoch - older
        leader_epoch = self.model.epoch - other_epoch
        applied = self.log.set_isr(epoch, isr, isr | more, leader_epoch=leader_epoch)
        # -1 asks for no check of the leader epoch.
        wanted = self.model.leads and not older and (not other_epoch or leader_epoch == -1)
        assert applied == wanted
        if applied:
            self.model.put(isr, isr | more)

    @rule(min_isr=st.integers(1, 5))
    def min_insync_replicas_change(self, min_isr: int) -> None:
        self.log.update_config(LogConfig.create(overrides={"min.insync.replicas": str(min_isr)}))
        self.model.min_isr = min_isr
        self.model.advance()

    @rule(isr=isrs, elected=st.booleans())
    def leadership(self, isr: set[int], elected: bool) -> None:
        if self.model.leads and not elected:
            self._lead(self.model.epoch, isr)
        else:
            self._lead(self.model.epoch + 1, isr)

    @precondition(lambda self: self.model.leads)
    @rule(back=st.integers(0, 5))
    def another_leads_for_a_while(self, back: int) -> None:
        """It follows, may lose its uncommitted tail, and gets a high watermark from its leader."""
        self.model.epoch += 1
        self.model.partition_epoch += 1
        self.log.become_follower(2, self.model.epoch, partition_epoch=self.model.partition_epoch)
        self.model.leads = False
        self.model.followers, self.model.isr, self.model.maximal = {}, set(), set()
        self.log.truncate_to(max(self.model.end - back, 0))
        self.model.end = self.log.log_end_offset
        self.model.high_watermark = min(self.model.high_watermark, self.model.end)

    @precondition(lambda self: not self.model.leads)
    @rule(offset=st.integers(0, 40))
    def the_leader_tells_its_high_watermark(self, offset: int) -> None:
        self.model.high_watermark = min(offset, self.model.end)
        assert self.log.set_high_watermark(offset) == self.model.high_watermark

    # --- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def the_log_agrees(self) -> None:
        model, log = self.model, self.log
        assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (
            model.end,
            model.high_watermark,
            model.high_watermark,
        )
        assert (log.in_sync_replicas, log.maximal_in_sync_replicas) == (len(model.isr), len(model.maximal))
        assert (log.is_leader, log.leader_epoch, log.partition_epoch) == (
            model.leads,
            model.epoch,
            model.partition_epoch,
        )
        if model.leads:
            assert log.epoch_start_offset == model.epoch_start
        assert log.followers() == [
            (replica, each.end, each.start, each.caught_up_ms, each.broker_epoch, replica in model.maximal)
            for replica, each in sorted(model.followers.items())
        ]
        events = [argument for kind, _, argument, _ in self.events.drain() if kind == FOLLOWER_CAUGHT_UP]
        assert events == model.events
        model.events.clear()


IsrMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestIsr = IsrMachine.TestCase
