"""POST /v1/scripts: definitions and changes, one after the other."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from headrace.serving.definition_routes import OfService, answered, read_model, refuse_definitions
from headrace.serving.openapi import DefinedBody, body, refusals
from headrace.serving.problems import Refusal
from headrace.serving.query import READS, refuse_long, refuse_statement
from headrace.serving.rows import JSON
from headrace.sql.statements import parse
from headrace.statements.run import run_statements

router = APIRouter(tags=["definitions"])


class Script(BaseModel):
    """Statements, one after the other."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"sql": "CREATE TABLE t (a INT);"}]})

    sql: str = Field(min_length=1, description="CREATE, ALTER, DROP, INSERT, UPDATE and DELETE, with ; between them.")


@router.post(
    "/v1/scripts",
    response_model=DefinedBody,
    responses=refusals(400, 404, 408, 413, 422, 429, 503),
    openapi_extra=body(Script.model_json_schema(), JSON, description="The statements."),
)
async def script(request: Request, service: OfService) -> Response:
    """Run statements one after the other, refused unless the setting serve_definitions allows definitions.

    An error tells which of them are carried out.
    """
    refuse_definitions(service)
    sent = await read_model(request, Script)
    refuse_long(sent.sql, service.settings.serve_sql_characters)

    def run() -> dict[str, Any]:
        statements = parse(sent.sql)
        for one in statements:
            refuse_statement(one, service)
            if isinstance(one, READS):
                raise Refusal(
                    400,
                    "definitions_only",
                    "a script takes definitions and changes",
                    detail="Its answer has no place for the rows of a query.",
                    hint="send the query to /v1/query",
                )
        with service.engine.core.sessions.catalyst.active():
            run_statements(service.engine, statements)
        return {"epoch": service.readings.epoch, "statements": len(statements)}

    return await answered(request, service, run)
