"""Sources at work: each is read by a thread of its own, and every record ends in an epoch, applied, stale or dead."""
