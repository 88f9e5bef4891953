"""Where changes of records are in their sources, so that intake can tell old ones from new ones."""

from __future__ import annotations

from headrace.capture.messages import Message, RowChange, Tombstone, Truncation
from headrace.capture.record import Record
from headrace.intake.positions import SourcePosition, numbered, sortable


class Positions:
    """The positions of records, each partition's read in its order."""

    def __init__(self) -> None:
        # Of each partition the last delete: the record, and its position.
        self._deletes: dict[int, tuple[Record, SourcePosition]] = {}

    def of(self, message: Message, record: Record) -> SourcePosition | None:
        """Where a record is; none for what changes no row."""
        partition = numbered(f"{record.topic}:{record.partition}")
        if isinstance(message, Tombstone):
            return self._tombstone(record, partition)
        if not isinstance(message, RowChange | Truncation):
            return None
        origin = message.origin
        order = sortable(origin.position.order)
        log = numbered(f"{origin.connector}:{origin.server}:{origin.table}") if order else 0
        # The broker's time is no time of the source: it counts where there is nothing else to let positions go by.
        at = origin.committed_at if order else record.timestamp
        position = SourcePosition(log, order, partition, record.offset, 0, at, origin.snapshot)
        if message.operation == "delete":
            self._deletes[partition] = record, position
        return position

    def remember(self, record: Record, position: SourcePosition) -> None:
        """Note a delete that was read otherwise, if it is later than the last one that is known."""
        known = self._deletes.get(position.partition)
        if known is None or known[0].offset < record.offset:
            self._deletes[position.partition] = record, position

    def _tombstone(self, record: Record, partition: int) -> SourcePosition:
        """That of the delete before it, which it repeats; where that was compacted away, the offset alone is known."""
        before = self._deletes.get(partition)
        if before is not None and before[0].offset == record.offset - 1 and before[0].key == record.key:
            return before[1]._replace(offset=record.offset)
        return SourcePosition(0, "", partition, record.offset, 0, record.timestamp)
