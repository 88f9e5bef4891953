"""/v0/pipelines/{name}: the home as a pipeline, which can be looked up, started, paused, stopped and counted."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import generate_latest

from headrace.access.grants import Access
from headrace.catalog.catalog import Relation, Table
from headrace.intake.arrow import table_schema
from headrace.serving.access import OfAccess, seen
from headrace.serving.feldera.errors import ClientRoute
from headrace.serving.feldera.pipeline_status import PipelineStatus, Status
from headrace.serving.feldera.schema import relation
from headrace.serving.problems import Refusal
from headrace.serving.service import Service, service_of

# The release whose client this was written and tested against; the client warns where its own differs.
ANSWERED_VERSION = "0.369.0"
EDITION = "Open source"

router = APIRouter(prefix="/v0", tags=["feldera"], route_class=ClientRoute)


async def any_pipeline(request: Request) -> PipelineStatus:
    """The pipeline's status, under whatever name."""
    return request.app.state.pipeline


async def pipeline_of(
    name: str,
    pipeline: Annotated[PipelineStatus, Depends(any_pipeline)],
    service: Annotated[Service, Depends(service_of)],
) -> PipelineStatus:
    """The pipeline's status, if this server answers to its name: to every name, unless some were set."""
    names = service.settings.serve_pipelines
    if names and name not in names:
        raise Refusal(
            404,
            "UnknownPipelineName",
            f"there is no pipeline {name}",
            detail=f"This server answers to {', '.join(names)}.",
            hint="use one of these names, or let the server answer to more with HEADRACE_SERVE_PIPELINES",
        )
    return pipeline


OfService = Annotated[Service, Depends(service_of)]
OfPipeline = Annotated[PipelineStatus, Depends(pipeline_of)]


@router.get("/config")
async def config() -> dict[str, Any]:
    """What the client asks first."""
    return {
        "version": ANSWERED_VERSION,
        "edition": EDITION,
        "revision": "headrace",
        "runtime_revision": "headrace",
        "telemetry": "",
        "changelog_url": "",
        "license_validity": None,
        "update_info": None,
        "build_info": {},
        "unstable_features": None,
    }


@router.get("/cluster_healthz")
async def cluster_healthz(service: OfService) -> dict[str, Any]:
    """What the client asks after a gateway failed."""
    part = {"healthy": not service.home.core.closed, "message": "", "unchanged_since": None, "checked_at": None}
    return {"all_healthy": part["healthy"], "runner": part, "compiler": part}


@router.get("/pipelines")
async def pipelines(
    service: OfService,
    pipeline: Annotated[PipelineStatus, Depends(any_pipeline)],
    access: OfAccess,
    selector: Annotated[Literal["all", "status"], Query()] = "status",
) -> list[dict[str, Any]]:
    """The one pipeline there is, under each of its names."""
    names = service.settings.serve_pipelines or (service.home.path.name,)
    return [describe(name, service, pipeline, access, whole=selector == "all") for name in names]


@router.get("/pipelines/{name}")
async def pipeline(
    name: str,
    service: OfService,
    pipeline: OfPipeline,
    access: OfAccess,
    selector: Annotated[Literal["all", "status"], Query()] = "all",
) -> dict[str, Any]:
    """Its status; with selector=all also its tables and views."""
    return describe(name, service, pipeline, access, whole=selector == "all")


@router.post("/pipelines/{name}/start", status_code=202)
async def start(
    pipeline: OfPipeline, initial: Annotated[Literal["running", "paused"], Query()] = "running"
) -> Response:
    """Take pushes from now on, or only forced ones."""
    return _moved(pipeline, "Paused" if initial == "paused" else "Running")


@router.post("/pipelines/{name}/resume", status_code=202)
async def resume(pipeline: OfPipeline) -> Response:
    """Take pushes again."""
    pipeline.refuse_stopped()
    return _moved(pipeline, "Running")


@router.post("/pipelines/{name}/pause", status_code=202)
async def pause(pipeline: OfPipeline) -> Response:
    """Refuse pushes that are not forced."""
    pipeline.refuse_stopped()
    return _moved(pipeline, "Paused")


@router.post("/pipelines/{name}/stop", status_code=202)
async def stop(pipeline: OfPipeline) -> Response:
    """End all listening, and refuse pushes and queries until the next start; nothing is lost."""
    return _moved(pipeline, "Stopped")


@router.post("/pipelines/{name}/dismiss_error", dependencies=[Depends(pipeline_of)])
async def dismiss_error() -> Response:
    """There never is one: what fails is told to the call that caused it."""
    return Response(status_code=200)


@router.get("/pipelines/{name}/stats")
async def stats(service: OfService, pipeline: OfPipeline) -> dict[str, Any]:
    """What went through this door since the server started."""
    pipeline.refuse_stopped()
    received, waiting = pipeline.counts.received, pipeline.counts.waiting
    steps = service.readings.epoch
    started = int(pipeline.started_at.timestamp())
    return {
        "global_metrics": {
            "state": pipeline.status,
            "bootstrap_in_progress": False,
            "transaction_status": "NoTransaction",
            "transaction_id": 0,
            "start_time": started,
            "initial_start_time": started,
            "incarnation_uuid": pipeline.incarnation,
            "buffered_input_records": waiting,
            "total_input_records": received,
            "total_processed_records": received - waiting,
            "total_completed_records": received - waiting,
            "total_initiated_steps": steps,
            "total_completed_steps": steps,
            "pipeline_complete": waiting == 0,
            "platform_version": ANSWERED_VERSION,
            "runtime_version": ANSWERED_VERSION,
        },
        "suspend_error": None,
        "inputs": [],
        "outputs": [],
    }


@router.get("/pipelines/{name}/metrics", dependencies=[Depends(pipeline_of)])
def metrics(service: OfService, format: Annotated[str, Query()] = "prometheus") -> Response:  # noqa: A002 - the name that the client sends
    """The server's figures in the text form of Prometheus."""
    if format != "prometheus":
        raise Refusal(400, "unsupported_format", f"format {format} is not offered", hint="ask for prometheus")
    # The client reads anything but exactly this content type as JSON.
    return Response(generate_latest(service.metrics.registry), headers={"content-type": "text/plain"})


def describe(name: str, service: Service, pipeline: PipelineStatus, access: Access, *, whole: bool) -> dict[str, Any]:
    """The pipeline by its name: its status, and what of it may be read if the whole is asked for."""
    status, since, born = pipeline.status, pipeline.since.isoformat(), pipeline.started_at.isoformat()
    runtime = "Unavailable" if status == "Stopped" else status
    resources = "Stopped" if status == "Stopped" else "Provisioned"
    described: dict[str, Any] = {
        "id": pipeline.id,
        "name": name,
        "description": f"the Headrace home {service.home.path.name}",
        "tags": [],
        "created_at": born,
        "version": 1,
        "program_version": 1,
        "platform_version": ANSWERED_VERSION,
        "program_status": "Success",
        "program_status_since": born,
        "deployment_status": status,
        "deployment_status_since": since,
        "deployment_desired_status": status,
        "deployment_desired_status_since": since,
        "deployment_resources_status": resources,
        "deployment_resources_status_since": since,
        "deployment_resources_desired_status": resources,
        "deployment_resources_desired_status_since": since,
        "deployment_runtime_status": runtime,
        "deployment_runtime_status_since": since,
        "deployment_runtime_status_details": None,
        "deployment_runtime_desired_status": runtime,
        "deployment_runtime_desired_status_since": since,
        "deployment_id": pipeline.incarnation,
        "deployment_initial": "Running",
        "deployment_error": None,
        "deployment_location": None,
        "bootstrap_policy": None,
        "storage_status": "InUse",
        "storage_status_details": None,
    }
    if whole:
        # A view that stands in for a table goes by the table's name.
        whose = service.readings.catalog.relations
        relations = seen(service.readings, access).catalog.relations
        tables = [_described(name, one) for name, one in relations.items() if isinstance(whose[name], Table)]
        views = [_described(name, one) for name, one in relations.items() if not isinstance(whose[name], Table)]
        clean = {"exit_code": 0, "stdout": "", "stderr": ""}
        described |= {
            "program_code": "",
            "udf_rust": "",
            "udf_toml": "",
            "program_config": {},
            "runtime_config": {},
            "deployment_config": {},
            "program_error": {
                "sql_compilation": {"exit_code": 0, "messages": []},
                "rust_compilation": clean,
                "system_error": None,
            },
            "program_info": {
                "schema": {"inputs": tables, "outputs": views},
                "input_connectors": {},
                "output_connectors": {},
            },
        }
    return described


def _described(name: str, one: Relation) -> dict[str, Any]:
    return relation(name, table_schema(one.schema))


def _moved(pipeline: PipelineStatus, status: Status) -> Response:
    pipeline.move(status)
    return JSONResponse({}, 202)
