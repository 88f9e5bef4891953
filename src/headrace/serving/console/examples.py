"""/v1/examples: a packaged pipeline at one click."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from headrace.errors import HeadraceError, SetupError
from headrace.face import Headrace, home_of
from headrace.progress import Step
from headrace.project.definitions import read_definitions
from headrace.project.folder import open_project
from headrace.project.packaged import MEDALLION, example_folder
from headrace.project.run import run_project
from headrace.serving.definition_routes import OfService, answered, read_model, refuse_definitions
from headrace.serving.openapi import ReceiptBody, body, refusals
from headrace.serving.problems import Refusal
from headrace.serving.rows import JSON

router = APIRouter(tags=["console"])

_HOURS = 48
_CHANGED = ("orders", "order_items", "clickstream_events", "inventory_events")
_GENERATE_SECONDS = 600
_log = logging.getLogger("headrace.console")

State = Literal["absent", "generating", "filling", "ready", "failed"]


class ExampleBody(BaseModel):
    """A packaged example, and how far it is in this home."""

    model_config = ConfigDict(extra="allow")

    name: str
    state: State
    detail: str


class Begin(BaseModel):
    """How large the example is to be."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"scale": 0.01}]})

    scale: float = Field(default=0.01, ge=0.001, le=0.2, allow_inf_nan=False, description="1 is 0.7 million orders.")


class Medallion:
    """The packaged shop in one home: it is made in the background, and its hours of changes come when asked for."""

    def __init__(self, hr: Headrace) -> None:
        self._hr = hr
        self._lock = threading.Lock()
        self._state: State = "absent"
        self._detail = ""
        self._data: Path | None = None

    def told(self) -> dict[str, Any]:
        """How far it is."""
        state, detail = self._state, self._detail
        if state == "absent" and "gold_weekly_revenue_trend" in home_of(self._hr).core.catalog:
            state = "ready"
        return {
            "name": MEDALLION,
            "title": "A shop's medallion",
            "about": "7 bronze tables, 8 silver and 7 gold views over 90 days of an online shop",
            "state": state,
            "detail": detail,
            "hours_left": len(self._hours()),
            "sql": {file.name: file.read_text() for file in sorted((example_folder(MEDALLION) / "sql").glob("*.sql"))},
        }

    def begin(self, scale: float) -> None:
        """Make it, unless that is under way."""
        with self._lock:
            if self._state in ("generating", "filling"):
                raise Refusal(409, "under_way", "the example is being made already", hint="wait until it is ready")
            self._tell("generating", "Making 90 days of a shop's data")
        threading.Thread(target=self._make, args=(scale,), name="headrace-example", daemon=True).start()

    def _tell(self, state: State, detail: str) -> None:
        self._state, self._detail = state, detail

    def _make(self, scale: float) -> None:
        try:
            folder = example_folder(MEDALLION)
            data = Path.home() / ".cache" / "headrace" / "examples" / f"{MEDALLION}-{scale:g}-{_HOURS}"
            if not data.exists():
                _generate(folder, data, scale)
            self._tell("filling", "Reading 7 tables and filling 15 views")
            with home_of(self._hr).core.progress.heard_by(self._heard):
                run_project(self._hr, read_definitions(open_project(folder, {"data": str(data)})))
            self._data = data
            self._tell("ready", "")
        except Exception as error:
            _log.warning("the example was not made", exc_info=not isinstance(error, HeadraceError))
            self._tell("failed", " ".join(str(error).split())[:500])

    def _heard(self, step: Step) -> None:
        self._detail = f"{step.kind} {step.relation}: {step.done:,} of {step.total:,}"

    def _hours(self) -> list[str]:
        """The hours that were not pushed yet."""
        if self._data is None:
            return []
        known = home_of(self._hr).core.known
        hours = sorted(file.stem for file in (self._data / "cdc" / "orders").glob("*.json"))
        return [hour for hour in hours if known(_key(hour)) is None]

    def push_hour(self) -> dict[str, Any]:
        """Push the next hour as one epoch; its receipt."""
        with self._lock:
            hours = self._hours()
            if not hours or self._data is None:
                raise Refusal(
                    404, "not_found", "there is no hour left", hint="push changes of your own to /v1/ingress/{table}"
                )
            changes = {
                f"bronze_{table}": [
                    json.loads(line)
                    for line in (self._data / "cdc" / table / f"{hours[0]}.json").read_text().splitlines()
                ]
                for table in _CHANGED
            }
            return self._hr.apply(changes, key=_key(hours[0])).to_json()


def _generate(folder: Path, data: Path, scale: float) -> None:
    """Make the shop's data, whole or not at all: others may make the same at the same time."""
    data.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{data.name}-", dir=data.parent) as unfinished:
        out = Path(unfinished) / "data"
        command = [sys.executable, str(folder / "generate.py"), "--scale", str(scale), "--hours", str(_HOURS)]
        made = subprocess.run(
            [*command, "--out", str(out)], capture_output=True, text=True, timeout=_GENERATE_SECONDS, check=False
        )
        if made.returncode:
            raise SetupError("the example's data was not made", detail=made.stderr.strip()[-500:])
        try:
            out.rename(data)
        except OSError:
            # Somebody was first, and what is there is the same.
            if not data.exists():
                raise


def _key(hour: str) -> str:
    return f"example-{hour}"


@router.get("/v1/examples", response_model=list[ExampleBody], responses=refusals(503))
async def examples(request: Request) -> Response:
    """The packaged examples with their SQL, and how far each is in this home."""
    return JSONResponse([await run_in_threadpool(_medallion(request).told)])


@router.post(
    "/v1/examples/medallion/start",
    response_model=ExampleBody,
    responses=refusals(400, 404, 408, 409, 413, 422, 503),
    openapi_extra=body(Begin.model_json_schema(), JSON, description="How large it is to be."),
)
async def start(request: Request, service: OfService) -> Response:
    """Make an example's tables and views and fill them, in the background; a definition, refused as these are."""
    refuse_definitions(service)
    sent = await read_model(request, Begin)
    _medallion(request).begin(sent.scale)
    return JSONResponse(await run_in_threadpool(_medallion(request).told))


@router.post("/v1/examples/medallion/push", response_model=ReceiptBody, responses=refusals(400, 404, 422, 429, 503))
async def push(request: Request, service: OfService) -> Response:
    """Push the next hour of an example's changes as one epoch."""
    return await answered(request, service, _medallion(request).push_hour)


def _medallion(request: Request) -> Medallion:
    return request.app.state.medallion
