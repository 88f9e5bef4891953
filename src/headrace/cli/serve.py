"""`headrace serve`: a home over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.opening import errors_reported, opened
from headrace.cli.options import DEFAULT_HOME, DebugOption, HomeOption, JsonOption
from headrace.settings import Settings


def serve(
    home: HomeOption = DEFAULT_HOME,
    host: Annotated[str, typer.Option(help="The address to listen on; others than this machine need a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8080,
    api_key: Annotated[
        list[str] | None,
        typer.Option("--api-key", help="A key that requests must carry; may be given several times."),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Serve a home over HTTP, which is created if it does not exist; ends with Ctrl-C.

    Examples:

        headrace serve

        headrace serve --host 0.0.0.0 --api-key "$KEY"
    """
    import uvicorn

    from headrace.serving.app import build_app
    from headrace.serving.auth import refuse_open_listening

    settings = Settings()
    if api_key:
        settings = settings.model_copy(update={"api_keys": tuple(api_key)})
    with errors_reported(as_json=as_json, debug=debug):
        refuse_open_listening(host, settings.api_keys)
    with opened(home, write=True, as_json=as_json, debug=debug) as hr:
        uvicorn.run(build_app(hr, settings), host=host, port=port, log_level="warning")
