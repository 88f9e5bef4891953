"""`headrace serve`: a home over HTTP."""

from __future__ import annotations

import threading
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.access.keys import read_keys
from headrace.cli.homes import ChosenHome, choose_home
from headrace.cli.log import LogFormat, begin_log, reloading, set_level
from headrace.cli.opening import errors_reported, opened, through_owner
from headrace.cli.options import DebugOption, HomeOption, JsonOption, MasterOption
from headrace.cli.project import RUN_PROJECT, run_for_others
from headrace.cli.show import show_json
from headrace.cli.standby import stand_by
from headrace.errors import HeadraceError, HomeBusy, OwnerLost
from headrace.offline import existing, is_there
from headrace.owner.ownership import living_owner
from headrace.project.folder import open_project
from headrace.settings import Settings, read_settings, settings_of_file


def serve(
    home: HomeOption = None,
    project: Annotated[
        Path | None,
        typer.Option("--project", metavar="FOLDER", help="Serve the home of this project, by its settings."),
    ] = None,
    settings_file: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            envvar="HEADRACE_SETTINGS",
            metavar="FILE",
            help="Settings in YAML, a line each, which go before those of the environment and of a project. Limits "
            "and the level of the log are read anew on SIGHUP and by headrace reload.",
        ),
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

    A home that is named, or that of a project, is created if it does not exist; of several that stand by, the first
    to come creates it.

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
    from headrace.serving.rehearsal import warm_queries
    from headrace.serving.reload import reload
    from headrace.serving.server import Server, run_until_told, take_port
    from headrace.spark.make_class_archive import Making

    with errors_reported(as_json=as_json, debug=debug):
        begin_log(log_format, read_settings().log_level)

        def chosen_now() -> ChosenHome:
            return choose_home(home) if project is None else _of_project(project, home)

        def settings_now() -> Settings:
            """As the files and the options of this server say."""
            found = chosen_now().settings or read_settings()
            given = {} if settings_file is None else settings_of_file(settings_file)
            settings = read_settings(**{**found.model_dump(exclude_unset=True), **given})
            added: dict[str, Any] = {
                "api_keys": (*settings.api_keys, *(api_key or ())),
                "commands": (*settings.commands, *(commands or ())),
                "serve_definitions": settings.serve_definitions or definitions,
            }
            if master is not None:
                added["spark_master"] = master
            return read_settings(**{**settings.model_dump(exclude_unset=True), **added})

        settings = settings_now()
        chosen = replace(chosen_now(), settings=settings)
        set_level(settings.log_level)
        there = is_there(chosen.location, settings)
        has_keys = there and bool(read_keys(existing(chosen.location, settings)).keys)
        refuse_open_listening(host, settings.api_keys, has_keys)
        certificate = certificate_of(tls_cert, tls_key)
        if there and not standby:
            _refuse_in_use(chosen, settings)
        # Tried before a home is made or Spark is started; taken when there is something to serve.
        take_port(host, port).close()

    hr: Any = None
    app: Any = None
    reading = threading.Lock()
    # What was read anew, also while this process stood by and had nothing to limit yet.
    reloaded: Settings | None = None

    def read_again() -> str:
        """What can change while a server runs; keys and policies are looked for all the time."""
        nonlocal reloaded
        # A signal and headrace reload may come at once.
        with reading:
            found = settings_now()
            if certificate is not None:
                certificate.read()
            set_level(found.log_level)
            reloaded = found
            later = "the level of the log; limits when the home is taken over"
            told = later if app is None else str(reload(app, found))
            return told + ("" if certificate is None else "; and the certificate")

    def listening(url: str) -> None:
        if paused := home_of(hr).paused_by_restore():
            typer.echo(
                f"note: {chosen.location} was restored from a backup. "
                f"Paused: {', '.join(paused)}. RESUME starts them here.",
                err=True,
            )
        if as_json:
            show_json({"url": url, "home": chosen.location, "epoch": hr.epoch})
            return
        typer.echo(f"Serving {chosen.location} (epoch {hr.epoch}) on {url}; Ctrl-C ends it. The console is there too.")
        typer.echo(_to_try(list(home_of(hr).core.catalog.relations), url, keyed=bool(settings.api_keys)))

    def serve_home() -> None:
        nonlocal hr, app
        # A server that was started in the wrong folder would otherwise serve an empty home there.
        with (
            reloading(read_again),
            opened(chosen, write=not standby, create=chosen.named) as hr,
            warm_queries(settings) if standby else nullcontext() as processes,
        ):
            if standby:
                stand_by(home_of(hr))
            home_of(hr).offer(RUN_PROJECT, run_for_others(hr))
            home_of(hr).offer("reload", lambda: {"told": read_again()})
            with reading:
                app = build_app(hr, settings, processes)
                if reloaded is not None:
                    reload(app, reloaded)
            # Who stood by for long may find that the keys are gone.
            refuse_open_listening(host, settings.api_keys, app.state.credentials.is_needed)
            app.state.service.answer_others()
            app.state.service.rehearse()
            server = Server(app, host, port, listening, certificate, lambda: app.state.service.is_lost)
            taken = server.bind()
            home_of(hr).offer("address", lambda: {"url": server.url})
            with Making(settings):
                run_until_told(server, taken)
            if app.state.service.is_lost:
                raise OwnerLost(
                    f"this process no longer owns the home {chosen.location}",
                    detail="Another process took it over while this one was silent. What was acknowledged is in it.",
                    hint="start this one again to stand by: headrace serve --standby",
                )

    with errors_reported(as_json=as_json, debug=debug):
        serve_home()


def _refuse_in_use(chosen: ChosenHome, settings: Settings) -> None:
    """Refuse to serve a home that another process has open, with where that one serves it."""
    owner = living_owner(existing(chosen.location, settings))
    if owner is None:
        return
    told: dict[str, Any] | None = None
    # One that serves nothing, is of an older release, or is on another machine does not say where.
    with suppress(HeadraceError):
        told = through_owner(chosen, "address")
    where = "" if told is None else f" It serves it at {told['url']}."
    raise HomeBusy(
        f"the home {chosen.location} is in use",
        detail=f"It is held by {owner}.{where}",
        hint="use that server, or end it first; to take over when it ends, stand by: "
        f"headrace serve --home {chosen.location} --standby --port 8081",
    )


def _of_project(project: Path, home: str | None) -> ChosenHome:
    """The home of a project, or the one that is named, with the project's settings."""
    opened_project = open_project(project)
    return ChosenHome(home or opened_project.home, opened_project.content.settings, named=True)


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
