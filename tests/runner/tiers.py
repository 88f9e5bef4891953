"""Tiers and parts of the suite: the pytest processes that run at the same time, and the test files of each.

`docs/testing.md` has the same table for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]

# The parts of everything, in order: a file belongs to the first part that has a pattern for it.
_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "unit": ("unit/test_*.py",),
    "cluster": ("cluster/test_*.py",),
    "kills": (
        "checks/test_*.py",
        "spark/test_spark_lost.py",
        "e2e/test_query_isolation.py",
        "e2e/test_failure_table.py",
        "e2e/test_feed_postgres_crash.py",
        "e2e/test_capture_resumed.py",
    ),
    "capture": (
        "e2e/test_capture_*.py",
        "e2e/test_formats_live.py",
        "e2e/test_schema_registry.py",
        "e2e/test_local_*.py",
    ),
    "feeds": (
        "e2e/test_feed_*.py",
        "e2e/test_changefeed_*.py",
        "e2e/test_data_postgres.py",
        "e2e/test_events_outbox.py",
        "e2e/test_transactions_docs.py",
        "e2e/test_medallion_hours.py",
    ),
    "server": ("e2e/test_*.py",),
    "views": (
        "property/test_*.py",
        "spark/test_c*.py",
        "spark/test_golden.py",
        "spark/test_medallion.py",
    ),
    "engine": ("spark/test_*.py",),
}


@dataclass(frozen=True)
class Lane:
    """One pytest process; its tests share one Spark and one set of servers."""

    name: str
    paths: tuple[str, ...]
    marks: str = ""
    further: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Return the arguments for pytest."""
        return [*self.paths, *(["-m", self.marks] if self.marks else []), *self.further]


@dataclass(frozen=True)
class Tier:
    """Lanes that run at the same time."""

    name: str
    lanes: tuple[Lane, ...]


def _files_by_part() -> dict[str, list[Path]]:
    """Return the test files of each part."""
    remaining = set(TESTS.glob("*/test_*.py"))
    files: dict[str, list[Path]] = {}
    for part, patterns in _PATTERNS.items():
        files[part] = sorted(path for pattern in patterns for path in TESTS.glob(pattern) if path in remaining)
        remaining -= set(files[part])
    return files


def _named(paths: list[Path]) -> tuple[str, ...]:
    return tuple(str(path.relative_to(TESTS.parent)) for path in paths)


def _shares(paths: list[Path], count: int) -> Iterator[list[Path]]:
    """Deal files out by their sizes, the largest first."""
    shares, sizes = [list[Path]() for _ in range(count)], [0] * count
    for path in sorted(paths, key=lambda path: (-path.stat().st_size, path.name)):
        least = sizes.index(min(sizes))
        shares[least].append(path)
        sizes[least] += path.stat().st_size
    return iter(sorted(share) for share in shares)


def _lanes(name: str, paths: list[Path], count: int, marks: str = "") -> tuple[Lane, ...]:
    shares = enumerate(_shares(paths, count), 1)
    return tuple(Lane(f"{name}-{number}" if count > 1 else name, _named(share), marks) for number, share in shares)


_FILES = _files_by_part()
_DEFAULT = "not slow"
# Spark starts once in each of these, Kafka, Connect and PostgreSQL once in the last.
_WITH_SPARK = (
    *_lanes("engine", _FILES["views"] + _FILES["engine"] + _FILES["server"], 2, _DEFAULT),
    *_lanes("servers", _FILES["kills"] + _FILES["capture"] + _FILES["feeds"], 1, _DEFAULT),
)
FAST = Tier("fast", _lanes("unit", _FILES["unit"], 4, f"{_DEFAULT} and not java and not thorough"))
TEST = Tier("test", (*_WITH_SPARK, *_lanes("unit", _FILES["unit"], 1, _DEFAULT)))
STEADY = Tier("steady", (*_WITH_SPARK, *_lanes("unit", _FILES["unit"], 1, f"{_DEFAULT} and (java or thorough)")))
_LANE_COUNTS = {"unit": 4, "cluster": 1, "kills": 1}
PARTS = {part: Tier(part, _lanes(part, files, _LANE_COUNTS.get(part, 2))) for part, files in _FILES.items()}
