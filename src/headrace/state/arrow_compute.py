"""Arrow's functions: they are made while it is loaded, so that nobody who checks types can know them."""

from __future__ import annotations

from typing import Any

import pyarrow.compute

pc: Any = pyarrow.compute
