"""Keys and values of control records: transaction markers and leader changes.

Leader changes stand in the metadata log.
"""

from uuid import UUID

from kafkapy.protocol.schema import ZERO_UUID, Record, Struct, array, int16, int32, uuid


class ControlRecordType(Record, versions="0"):
    """Key of a control record.

    Types: 0 abort, 1 commit, 2 leader change, 3 and 4 snapshot header and footer.
    """

    type: int = int16()


class EndTxnMarker(Record, versions="0"):
    """Value of a commit or abort marker: the epoch of its transaction coordinator."""

    coordinator_epoch: int = int32()


class Voter(Struct):
    """A member of the quorum."""

    voter_id: int = int32()
    voter_directory_id: UUID = uuid("1+", default=ZERO_UUID)


class LeaderChangeMessage(Record, versions="0-1", flexible="0+"):
    """Value of a leader change record in the metadata log."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)
