"""`headrace serve`: a home over HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.access.keys import read_keys
from headrace.cli.homes import ChosenHome, choose_home, with_master
from headrace.cli.log import LogFormat, begin_log, reloading, set_level
from headrace.cli.opening import errors_reported, opened
from headrace.cli.options import DebugOption, HomeOption, JsonOption, MasterOption
from headrace.cli.project import RUN_PROJECT, run_for_others
from headrace.cli.show import show_json
from headrace.cli.standby import stand_by
from headrace.offline import existing, is_there
from headrace.project.folder import open_project
from headrace.settings import read_settings


def serve(
    home: HomeOption = None,
    project: Annotated[
        Path | None,
        typer.Option("--project", metavar="FOLDER", help="Serve the home of this project, by its settings."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but this machine's own needs an API key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8080,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            help="A key that may do everything; give the option again for more. headrace key create makes others. "
            "HEADRACE_API_KEYS='[\"...\"]' keeps it out of the list of processes.",
        ),
    ] = None,
    definitions: Annotated[
        bool,
        typer.Option("--definitions", help="Take CREATE, ALTER and DROP over HTTP and from the console too."),
    ] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Follow the home while another process serves it, and take over when it ends."),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How lines of the log are written on stderr.")
    ] = LogFormat.text,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Certificate with its chain, in PEM: serve HTTPS."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key of the certificate, in PEM.")
    ] = None,
    commands: Annotated[
        list[str] | None,
        typer.Option(
            "--commands",
            metavar="FILE",
            help="A Python file, or a module, whose commands are carried out under /v1/commands; may be repeated.",
        ),
    ] = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Serve a home over HTTP until Ctrl-C.

    A home that is named, or that of a project, is created if it does not exist.

    Examples:

        headrace serve --home sales

        headrace serve --project examples/medallion

        headrace serve --home shop --definitions

        headrace serve --host 0.0.0.0 --api-key "$KEY"

    A browser finds the console at the address that is printed. From another shell, changes go in, all of a request or
    none; with wait the answer comes when every view is current and the changes are on disk:

        curl localhost:8080/v1/ingress/t?wait=true -d '{"insert": {"id": 1}}'

        curl localhost:8080/v1/epochs -d '{"t": [{"delete": {"id": 1}}], "u": []}'

    Queries, as JSON, or by Accept as CSV, NDJSON or Arrow:

        curl localhost:8080/v1/query -d '{"sql": "SELECT * FROM revenue"}'

    A view's changes as they happen:

        curl -N localhost:8080/v1/changes/revenue

    A second server that stands by takes over within seconds when the first one is gone:

        headrace serve --home sales --standby --port 8081

    A key is sent as Authorization: Bearer KEY or X-API-Key: KEY. /openapi.json describes all routes; /healthz, /readyz
    and /metrics are for operation. Limits are settings, HEADRACE_SERVE_...; CREATE, ALTER and DROP are taken only with
    --definitions or HEADRACE_SERVE_DEFINITIONS=true.
    """
    # Imported late, so that the other verbs do not pay for it.
    from headrace.face import home_of
    from headrace.serving.app import build_app
    from headrace.serving.auth import refuse_open_listening
    from headrace.serving.certificate import certificate_of
    from headrace.serving.server import Server, run_until_told
    from headrace.spark.make_class_archive import Making

    with errors_reported(as_json=as_json, debug=debug):
        begin_log(log_format, read_settings().log_level)
        if project is None:
            chosen = choose_home(home)
        else:
            opened_project = open_project(project)
            chosen = ChosenHome(home or opened_project.home, opened_project.content.settings, named=True)
        chosen = with_master(chosen, master)
        settings = chosen.settings or read_settings()
        if api_key:
            given = {**settings.model_dump(exclude_unset=True), "api_keys": (*settings.api_keys, *api_key)}
            settings = read_settings(**given)
        if definitions:
            settings = read_settings(**{**settings.model_dump(exclude_unset=True), "serve_definitions": True})
        there = is_there(chosen.location, settings)
        has_keys = there and bool(read_keys(existing(chosen.location, settings)).keys)
        if commands:
            given = {**settings.model_dump(exclude_unset=True), "commands": (*settings.commands, *commands)}
            settings = read_settings(**given)
        refuse_open_listening(host, settings.api_keys, has_keys)
        certificate = certificate_of(tls_cert, tls_key)
        chosen = replace(chosen, settings=settings)

    hr: Any = None

    def settings_again() -> None:
        """What can change while a server runs: the level of its log; keys are looked for all the time."""
        set_level(read_settings().log_level)

    def listening(url: str) -> None:
        if as_json:
            show_json({"url": url, "home": chosen.location, "epoch": hr.epoch})
            return
        typer.echo(f"Serving {chosen.location} (epoch {hr.epoch}) on {url}; Ctrl-C ends it. The console is there too.")
        typer.echo(_to_try(list(home_of(hr).core.catalog.relations), url, keyed=bool(settings.api_keys)))

    def serve_home() -> None:
        nonlocal hr
        # A server that was started in the wrong folder would otherwise serve an empty home there.
        with opened(chosen, write=not standby, create=chosen.named and not standby) as hr:
            if standby:
                stand_by(home_of(hr))
            home_of(hr).offer(RUN_PROJECT, run_for_others(hr))
            app = build_app(hr, settings)
            app.state.service.answer_others()
            app.state.service.rehearse()
            server = Server(app, host, port, listening, certificate)
            taken = server.bind()
            with reloading(settings_again, certificate), Making(settings):
                run_until_told(server, taken)

    with errors_reported(as_json=as_json, debug=debug):
        serve_home()


def _to_try(names: list[str], url: str, *, keyed: bool) -> str:
    """What a user may do next, with relations that are there."""
    key = " -H 'Authorization: Bearer KEY'" if keyed else ""
    name = names[-1] if names else "x"
    lines = [
        f'  curl{key} {url}/v1/query -d \'{{"sql": "SELECT * FROM {name} LIMIT 10"}}\'',
        f"  curl{key} -N {url}/v1/changes/{name}",
        f"  curl{key} {url}/metrics",
    ]
    if not names:
        lines.insert(0, "The home has no tables yet: define some with headrace run, then try")
    return "\n".join(lines)
