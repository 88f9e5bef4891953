"""/healthz, /readyz: whether the server lives, and whether it can take changes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from headrace.serving.problems import Refusal
from headrace.serving.service import Service, service_of

router = APIRouter(tags=["operation"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Answers as long as the process does."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(service: Annotated[Service, Depends(service_of)]) -> dict[str, object]:
    """Whether the home is open here and this process is still its owner."""
    if service.hr.closed:
        raise Refusal(503, "not_ready", "the home is closed")
    return {"status": "ready", "epoch": service.hr.epoch}
