"""Files, on a disk or in an object store."""
