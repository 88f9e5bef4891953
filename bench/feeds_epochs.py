"""Small epochs beside a changefeed at full speed: how long each takes, with and without the feed."""

from __future__ import annotations

import statistics
import time
from typing import Any

_WARM_UP, _ALONE = 40, 60
_ROWS = 100
_PAUSE_SECONDS = 0.05
_GIVE_UP_SECONDS = 600


class SmallEpochs:
    """Epochs of 100 updates of a table of their own, under a view that sums them up."""

    def __init__(self, hr: Any) -> None:
        self._hr = hr
        hr.execute("CREATE TABLE visits (id INT PRIMARY KEY, page INT, n INT)")
        hr.execute(
            "CREATE VIEW visits_by_page AS SELECT page, count(*) AS visits, sum(n) AS n FROM visits GROUP BY page"
        )
        self._number = 0
        for _ in range(_WARM_UP):
            self._commit()

    def alone(self) -> float:
        """Return the median duration in milliseconds while no feed delivers."""
        return _median([self._commit() for _ in range(_ALONE)])

    def until_delivered(self, name: str, events: int, began_at: float) -> tuple[float, float]:
        """Commit epochs until a feed has delivered so many events; return its seconds, and their median duration."""
        durations: list[float] = []
        while True:
            (feed,) = [one for one in self._hr.execute("SHOW CHANGEFEEDS").to_pylist() if one["name"] == name]
            seconds = time.monotonic() - began_at
            if feed["events_delivered"] >= events:
                return seconds, _median(durations)
            if feed["state"] != "Running" or seconds > _GIVE_UP_SECONDS:
                raise SystemExit(f"changefeed {name} does not come to its end: {feed}")
            durations.append(self._commit())

    def _commit(self) -> float:
        self._number += 1
        rows = [{"insert": {"id": key, "page": key % 10, "n": self._number}} for key in range(_ROWS)]
        time.sleep(_PAUSE_SECONDS)
        began_at = time.monotonic()
        self._hr.apply({"visits": rows})
        return time.monotonic() - began_at


def _median(durations: list[float]) -> float:
    return round(statistics.median(durations) * 1000, 1)
