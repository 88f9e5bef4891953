"""The position at which a feed resumes: that of its home, or of the sink, which may be further or an older copy."""

from __future__ import annotations

from dataclasses import replace

from headrace.catalog.catalog import Feed, Relation
from headrace.epoch.core import Core
from headrace.errors import FeedError
from headrace.feeds.batch import Mark
from headrace.feeds.checkpoint import FeedCheckpoint
from headrace.feeds.open_feed import OpenFeed
from headrace.feeds.progress import Progress
from headrace.feeds.sink import Delivery
from headrace.ledger.backup import Restored, read_restored


def resume(core: Core, opened: OpenFeed, delivery: Delivery, checkpoint: FeedCheckpoint) -> Progress:
    """Return the progress of a feed whose sink is open, and record it; raise if home and sink do not fit."""
    feed, relation, progress = opened.feed, opened.relation, checkpoint.read()
    if progress is None:
        scanning = opened.options.initial_scan != "no"
        epoch = feed.begins_after if scanning else None
        progress = Progress(Mark(feed.begins_after, 0 if scanning else None, 0), epoch, scanning, scans=feed.scans)
        if scanning and not _is_readable(core, relation, feed.begins_after):
            progress = rescan(progress, core.epoch)
    elif progress.scans < feed.scans:
        progress = replace(rescan(progress, core.epoch), scans=feed.scans, done=False)
    elif progress.scanning and not _is_readable(core, relation, progress.scan_epoch or 0):
        progress = rescan(progress, core.epoch)
    restored = read_restored(core.path)
    progress = _with_known(core, feed, delivery, progress, restored)
    progress = replace(progress, restored="" if restored is None else restored.id)
    checkpoint.record(progress, now=True)
    return progress


def rescan(progress: Progress, epoch: int) -> Progress:
    """Return the progress of a feed that is to deliver all rows again, as they are at an epoch."""
    mark = Mark(epoch, 0, progress.mark.sequence)
    return replace(progress, mark=mark, scan_epoch=epoch, scanning=True, reset_due=True, begun=False, confirmed=0)


def _with_known(core: Core, feed: Feed, delivery: Delivery, progress: Progress, restored: Restored | None) -> Progress:
    """Return the further progress of home and sink; raise if one of them is an older copy of itself."""
    known = delivery.known_mark()
    if progress.reset_due:
        never_delivered = known is None and progress.mark.sequence == 0 and not progress.scanning
        if never_delivered and delivery.keeps_marks and not delivery.tells_resets:
            # There is nothing to reset: a number that no event has would look like an event that the sink has lost.
            return replace(progress, reset_due=False)
        # What comes next has numbers that the sink has never seen.
        sequence = max(progress.mark.sequence, known.sequence if known is not None else 0)
        return replace(progress, mark=replace(progress.mark, sequence=sequence))
    # Until the feed has recorded a position in a restored home, later epochs of the sink are those of the other home.
    is_new_here = restored is not None and progress.restored != restored.id
    last = restored.epoch if restored is not None and is_new_here else core.epoch
    if known is not None and known.epoch > last:
        raise _parted(
            feed,
            f"It has events of epoch {known.epoch}, and the home was at epoch {last}: "
            "the home was put back to an older copy.",
        )
    _refuse_older(feed, delivery, known, progress)
    if known is None or known <= progress.mark:
        return progress
    # A sink whose position is past the whole epoch of the scan has ended the scan, though the home did not hear of it.
    has_ended = known.event is None and (bool(progress.mark.event) or known.sequence > progress.mark.sequence)
    scanning = progress.scanning and known.epoch == progress.scan_epoch and not has_ended
    return replace(progress, mark=known, scanning=scanning)


def refuse_older_copy(feed: Feed, delivery: Delivery, progress: Progress) -> None:
    """Raise if a sink that was away has an older position than it confirmed: it was restored from a copy."""
    if delivery.keeps_marks and progress.confirmed:
        _refuse_older(feed, delivery, delivery.known_mark(), progress)


def _refuse_older(feed: Feed, delivery: Delivery, known: Mark | None, progress: Progress) -> None:
    if delivery.keeps_marks and progress.confirmed > (known.sequence if known is not None else 0):
        held = f"up to event {known.sequence}" if known is not None else "not at all"
        raise _parted(feed, f"It knows the feed {held}, and has confirmed event {progress.confirmed} before.")


def _parted(feed: Feed, how: str) -> FeedError:
    return FeedError(
        f"the sink of changefeed {feed.name} does not hold what the feed has delivered",
        detail=how,
        hint=f"RESYNC CHANGEFEED {feed.name} delivers all rows again",
    )


def _is_readable(core: Core, relation: Relation, epoch: int) -> bool:
    """Return whether a relation can be read at an epoch, and has the columns that it has now."""
    history = core.catalog.history
    then, now = (history.at(relation.name, one) for one in (epoch, core.epoch))
    expired = epoch < core.ledger.oldest
    return not expired and then is not None and now is not None and then.goes_on_as(now)
