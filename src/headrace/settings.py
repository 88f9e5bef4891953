"""What a user may set, typed and documented at the field."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import AfterValidator, BaseModel, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from headrace.errors import SetupError
from headrace.plain_yaml import read_yaml

_SHORTEST_KEY = 8
_PREFIX = "HEADRACE_"
# What the command line and the crash checks read.
_OTHER_NAMES = {"HEADRACE_HOME", "HEADRACE_API_KEY", "HEADRACE_SETTINGS", "HEADRACE_CRASH_AT"}
# What a server takes on while it runs: the level of its log and its limits.
RELOADED = frozenset(
    {
        "log_level",
        "alert_lag",
        "data_burst",
        "data_offset_rows",
        "data_page_bytes",
        "data_page_rows",
        "data_rate",
        "data_scan_rows",
        "serve_body_bytes",
        "serve_body_time",
        "serve_completions",
        "serve_keep_alive",
        "serve_pushes",
        "serve_queries",
        "serve_query_rows",
        "serve_query_time",
        "serve_room_bytes",
        "serve_source_locations",
        "serve_sql_characters",
        "serve_streams",
    }
)
_warned: set[str] = set()
_log = logging.getLogger("headrace.settings")


def _usable_key(key: str) -> str:
    """An API key that is none by mistake, and that fits into a header."""
    if not key.strip():
        raise ValueError("an API key is empty; is the variable that it comes from set?")
    if key != key.strip() or not key.isprintable():
        raise ValueError("an API key has blanks around it or characters that no header takes")
    if len(key) < _SHORTEST_KEY:
        raise ValueError(
            f"an API key is shorter than {_SHORTEST_KEY} characters; openssl rand -hex 32 makes a good one"
        )
    return key


class Settings(BaseSettings):
    """The settings of one home; each can also come from the environment as HEADRACE_<NAME>."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="forbid")

    small_bound: int = Field(
        default=200_000,
        ge=0,
        description="Rows that a rule may read through the driver, as Arrow, in one epoch. "
        "A change that would need more is worked out by an ordinary Spark query.",
    )
    inline_bytes: int = Field(
        default=4 * 1024 * 1024,
        ge=0,
        description="Bytes of one delta that may lie inside its ledger row. "
        "A larger one is written as files that the row names.",
    )
    spark_memory: str = Field(
        default="2g",
        pattern=r"^[1-9][0-9]*[kKmMgGtT]$",
        description="Heap of the local Spark, in the JVM's notation, such as 2g or 512m. "
        "Read only where Headrace starts Spark.",
    )
    spark_cores: int | None = Field(
        default=None,
        ge=1,
        description="Cores of the local Spark; none means all. Read only where Headrace starts Spark.",
    )
    spark_silence: timedelta = Field(
        default=timedelta(seconds=5),
        ge=timedelta(seconds=1),
        description="How long the local Spark may give no sign of life, while it has the processor, before it is ended "
        "and another is started; longer in proportion where its heap is larger than 4 GB. "
        "Read only where Headrace starts Spark.",
    )
    spark_master: str | None = Field(
        default=None,
        pattern=r"^(local(\[([1-9][0-9]*|\*)(\s*,\s*[1-9][0-9]*)?\])?|spark://.+|yarn|k8s://.+)$",
        description="Master of the Spark that Headrace starts, such as spark://host:7077 or local[4]; none means a "
        "local Spark. Also given by --master.",
    )
    spark_options: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Further settings of the Spark that Headrace starts, such as spark.executor.memory; "
        "a JSON object in the environment. Options of Java are added to those that Headrace gives; spark.master counts "
        "as spark_master, and is refused beside another.",
    )
    spark_patience: timedelta = Field(
        default=timedelta(seconds=60),
        ge=timedelta(seconds=1),
        description="How long work may wait for a first executor of a Spark cluster before it is given up.",
    )
    shared_scratch: str | None = Field(
        default=None,
        min_length=1,
        description="Folder in which the driver of a Spark cluster and its executors leave files for each other, under "
        "the same path on all their machines; none means the folder scratch of the home. What lies there may go. "
        "Read only where Spark is not local.",
    )
    tombstone_retention: timedelta = Field(
        default=timedelta(days=7),
        ge=timedelta(0),
        description="How long a deleted key of a SEQUENCE BY table, and the position of a captured key's last change, "
        "is remembered, so that a late change does not bring the key back.",
    )
    clock_resolution_seconds: float = Field(
        default=1.0,
        gt=0,
        description="How finely now() advances, and how late a row that the clock alone moves may be.",
    )
    owner_timeout: timedelta = Field(
        default=timedelta(seconds=30),
        ge=timedelta(seconds=1),
        description="How long the owner of a home may be silent before another process may take its place. "
        "An owner whose process ended is replaced at once.",
    )
    verify_digits: int = Field(
        default=9,
        ge=1,
        le=17,
        description="Significant digits to which the judge compares DOUBLE and FLOAT values.",
    )
    fold_when_idle: timedelta = Field(
        default=timedelta(minutes=1),
        ge=timedelta(0),
        description="How long the bases may lag behind the newest epoch while no change comes.",
    )
    fold_at_latest: timedelta = Field(
        default=timedelta(minutes=15),
        ge=timedelta(0),
        description="How long the bases may lag behind while changes keep coming.",
    )
    fold_log_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=1,
        description="How much the log may grow before it is folded, however little time has passed.",
    )
    keep_time: timedelta = Field(
        default=timedelta(days=7),
        ge=timedelta(0),
        description="How long an epoch stays readable by time travel and as changes.",
    )
    keep_epochs: int = Field(
        default=100_000,
        ge=1,
        description="How many epochs stay readable by time travel and as changes, however young they are.",
    )
    vacuum_grace: timedelta = Field(
        default=timedelta(minutes=1),
        ge=timedelta(0),
        description="How long a file that is no longer needed stays for whoever may still be reading it.",
    )
    event_bytes: int = Field(
        default=1024 * 1024,
        ge=1,
        description="Bytes of one event's data and metadata together; a larger one is rejected.",
    )
    commands: tuple[str, ...] = Field(
        default=(),
        description="Python files or modules whose commands the server carries out under /v1/commands; a JSON array in "
        "the environment. Also given by serve --commands.",
    )
    api_keys: tuple[Annotated[str, AfterValidator(_usable_key)], ...] = Field(
        default=(),
        description="Keys of which a request to the server must carry one; a JSON array in the environment, "
        f"each of at least {_SHORTEST_KEY} characters. Without any, the server listens on this machine only.",
    )
    serve_pushes: int = Field(
        default=256,
        ge=1,
        description="Requests with changes that the server has under way at once; more are answered 429.",
    )
    serve_body_bytes: int = Field(
        default=32 * 1024 * 1024,
        ge=1,
        description="Bytes of one request's body; a larger one is answered 413.",
    )
    serve_room_bytes: int = Field(
        default=1024 * 1024 * 1024,
        ge=1,
        description="Bytes of memory that changes may take until they are committed, counted by what the bodies of all "
        "requests become: 20 to 80 times their size. A body that needs more is answered 413; one that finds others in "
        "it, 429.",
    )
    serve_completions: int = Field(
        default=100_000,
        ge=1,
        description="Completion tokens that the server remembers after their changes were committed or rejected.",
    )
    serve_definitions: bool = Field(
        default=False,
        description="Whether POST /v1/query also takes CREATE, ALTER and DROP.",
    )
    serve_source_locations: tuple[str, ...] | None = Field(
        default=None,
        description="What sources and changefeeds that clients define may name: folders, URLs of registries, databases "
        "and webhooks, kafka://host:port, references of secrets (file:/folder, env:NAME, env:PREFIX*); a JSON array "
        "in the environment. Anything if it is not given.",
    )
    serve_queries: int = Field(
        default=8,
        ge=1,
        description="Queries that the server runs at once; more are answered 429. One key and address has at most "
        "three quarters of them.",
    )
    serve_sql_characters: int = Field(
        default=128 * 1024,
        ge=1,
        description="Characters of one statement that the server is sent; a longer one is answered 413.",
    )
    serve_query_rows: int = Field(
        default=100_000,
        ge=1,
        description="Rows that one query may be answered with.",
    )
    serve_query_time: timedelta = Field(
        default=timedelta(seconds=60),
        gt=timedelta(0),
        description="How long one query may take before it is stopped.",
    )
    serve_query_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=1,
        description="Bytes of rows, as Arrow, that one query may be answered with.",
    )
    serve_query_memory: str = Field(
        default="1g",
        pattern=r"^[1-9][0-9]*[kKmMgGtT]$",
        description="Heap of each process in which the server runs queries, in the JVM's notation. "
        "With what lies beside the heap, such a process takes up to 1.5 GiB more before it is ended.",
    )
    serve_query_processes: int = Field(
        default=3,
        ge=1,
        description="Processes in which the server runs queries, at most; each runs one query at a time, and further "
        "queries wait for one. The first is started by the first query that needs Spark, another one when a query runs "
        "or waits for more than a second and no process is free.",
    )
    serve_streams: int = Field(
        default=256,
        ge=1,
        description="Change streams that the server has open at once; more are answered 429.",
    )
    serve_patience: timedelta = Field(
        default=timedelta(seconds=30),
        gt=timedelta(0),
        description="How long a client may leave its request or its body unsent, or a piece of its stream unread.",
    )
    serve_body_time: timedelta = Field(
        default=timedelta(seconds=60),
        gt=timedelta(0),
        description="How long a whole body may take to arrive, and one second more for every 64 KiB of it.",
    )
    serve_connections: int = Field(
        default=2_000,
        ge=1,
        description="Connections that the server has open at once, at most as many as the process may open files; "
        "more are answered 503.",
    )
    serve_keep_alive: timedelta = Field(
        default=timedelta(seconds=15),
        gt=timedelta(0),
        description="How often a change stream without changes shows that it is alive.",
    )
    data_keys: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Columns that tell the rows of a relation apart which has no key of its own, for GET /v1/data: "
        'a JSON object such as {"desk": "id"} in the environment.',
    )
    data_indexes: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Indexes of relations beside their keys, by which GET /v1/data filters and sorts: a JSON object "
        'such as {"desk": "user_id; user_id, at DESC"} in the environment.',
    )
    data_page_rows: int = Field(
        default=1_000,
        ge=1,
        description="Rows of one answer of GET /v1/data, at most.",
    )
    data_page_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1,
        description="Bytes of the rows of one answer of GET /v1/data; a page that would be larger has fewer rows.",
    )
    data_offset_rows: int = Field(
        default=100_000,
        ge=0,
        description="Rows that GET /v1/data passes over for one offset, at most; cursors go on anywhere.",
    )
    data_scan_rows: int = Field(
        default=10_000,
        ge=0,
        description="Rows of a relation that GET /v1/data reads whole for a filter or an order without an index; in a "
        "larger one such a request is refused.",
    )
    data_rate: float | None = Field(
        default=None,
        gt=0,
        description="Requests to /v1/data that each API key, or without keys each address, may send in a second; more "
        "are answered 429. None means no limit.",
    )
    data_burst: int = Field(
        default=50,
        ge=1,
        description="Requests to /v1/data that may come at once before data_rate holds.",
    )
    data_postgres: str | None = Field(
        default=None,
        min_length=1,
        description="Where the URL of the PostgreSQL is from which /v1/data serves relations that a running changefeed "
        "mirrors there, as env:NAME or file:/path; it may name a replica or a user who only reads. None means that all "
        "comes from the home itself.",
    )
    data_postgres_connections: int = Field(
        default=10,
        ge=1,
        description="Connections to that PostgreSQL, at most.",
    )
    data_system_tables: bool = Field(
        default=False,
        description="Whether /v1/data also shows what Headrace keeps of its own work, such as dead_letters.",
    )
    serve_pipelines: tuple[str, ...] = Field(
        default=(),
        description="Names of pipelines under which the home answers the feldera client; a JSON array in the "
        "environment. Without any, it answers to every name, so that a script's own name needs no change.",
    )
    oidc_issuer: str | None = Field(
        default=None,
        pattern=r"^https?://.+$",
        description="Provider of OpenID Connect by which people sign in at /auth/login; from then on requests need a "
        "key or a session.",
    )
    oidc_client_id: str | None = Field(default=None, min_length=1, description="What the provider knows the server by.")
    oidc_client_secret: str | None = Field(
        default=None,
        pattern=r"^(env:|file:).+$",
        description="Where the client's secret lies: env:NAME or file:/path; none for a public client.",
    )
    oidc_claim: str = Field(default="groups", min_length=1, description="Claim that lists what grants are given to.")
    oidc_grants: dict[str, list[str]] = Field(
        default_factory=dict[str, list[str]],
        description="By group, or by verified address, what is granted, such as read:sales_* or admin; a JSON object "
        "in the environment. To whom nothing is granted, nothing is open.",
    )
    oidc_redirect: str | None = Field(
        default=None,
        pattern=r"^https?://.+/auth/callback$",
        description="Address of /auth/callback as browsers reach it; none means as they asked for /auth/login.",
    )
    alert_webhook: str | None = Field(
        default=None,
        pattern=r"^(https?://|env:|file:).+$",
        repr=False,
        description="Where headrace serve posts what came to be wrong and what is right again: a URL, or env:NAME or "
        "file:/path that holds one.",
    )
    alert_lag: timedelta = Field(
        default=timedelta(minutes=5),
        gt=timedelta(0),
        description="How far a source or a view may be behind before headrace status and alerts say so.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning",
        description="What headrace serve writes into its log: this and what is graver.",
    )
    pause_garbage_collection: bool = Field(
        default=False,
        description="Whether Python's garbage collector rests while an epoch runs, and never looks at what was loaded "
        "when Spark had started: epochs are a little faster. It is the whole process's, so a program that opens a home "
        "must ask for it; headrace serve, run and their kin do, unless they are told otherwise.",
    )
    storage_options: dict[str, str] = Field(
        default_factory=dict[str, str],
        repr=False,
        description="How a home at a URI is reached, in the words of Rust's object_store: aws_access_key_id, "
        "aws_endpoint_url, allow_http, google_service_account, azure_storage_account_key and so on. What is not given "
        "comes from the environment (AWS_ACCESS_KEY_ID, AWS_REGION, ...) or from the machine's own role.",
    )
    jars: Path = Field(
        default_factory=lambda: Path.home() / ".cache" / "headrace" / "jars",
        description="Folder in which the pinned jars are kept after the first download.",
    )
    class_archive: bool = Field(
        default=True,
        description="Whether a server makes an archive of Spark's classes in the background, where there is none for "
        "its Java and its jars: 200 MB beside the jars, made once, with which every Spark starts in half the time.",
    )

    @field_validator("spark_options")
    @classmethod
    def _refuse_second_master(cls, options: dict[str, str], others: ValidationInfo) -> dict[str, str]:
        """Refuse two masters: whichever were taken, who named the other would not know."""
        named, other = others.data.get("spark_master"), options.get("spark.master")
        if named is not None and other is not None and named != other:
            raise ValueError(
                f"spark.master is {other}, and spark_master, which --master gives too, is {named}; leave one out"
            )
        return options


def read_settings(**given: Any) -> Settings:
    """The settings given, the others from the environment; one that cannot be is an error that names it."""
    _tell_unknown_names()
    try:
        return Settings(**given)
    except SettingsError as error:
        raise SetupError(
            "a setting is not as it must be",
            detail=f"{error}.",
            hint="lists are written as JSON in the environment: HEADRACE_API_KEYS='[\"...\"]'; without any, unset it",
        ) from None
    except ValidationError as error:
        raise SetupError(
            "a setting is not as it must be",
            detail="; ".join(told_fault(one["loc"], one["type"], one["msg"], Settings) for one in error.errors()) + ".",
            hint="docs/reference/settings.md describes them; each is given to headrace.open or by the environment as "
            "HEADRACE_<NAME>, durations as 00:00:30 or PT30S",
        ) from None


def settings_of_file(file: Path) -> dict[str, Any]:
    """What a file of settings gives, by name; which of it cannot be is found when it is read as settings."""
    try:
        content = read_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SetupError(
            f"the settings in {file} cannot be read", detail=f"{error}.", hint="write a line name: value for each"
        ) from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in cast("dict[object, Any]", content)):
        raise SetupError(f"{file} holds no settings", hint="write a line name: value for each")
    return cast("dict[str, Any]", content)


def told_fault(where: Sequence[str | int], kind: str, message: str, model: type[BaseModel]) -> str:
    """What is wrong with one value that was given; of an unknown name, the known one that is nearest."""
    name = ".".join(str(part) for part in where)
    if kind == "string_pattern_mismatch" and (field := model.model_fields.get(str(where[-1]))) is not None:
        # A regular expression tells nobody what to write.
        return f"{name}: {(field.description or '').removesuffix('.')}"
    if kind != "extra_forbidden":
        return f"{name}: {message}"
    known = [field.alias or known for known, field in model.model_fields.items()]
    near = difflib.get_close_matches(str(where[-1]), known, n=1)
    return f"{name}: there is no such key" + (f", but there is {near[0]}" if near else "")


def _tell_unknown_names() -> None:
    """Warn of what the environment sets that is no setting, each name once: most likely it is misspelt."""
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields} | _OTHER_NAMES
    for name in sorted(os.environ.keys() - known - _warned):
        if not name.startswith(_PREFIX):
            continue
        _warned.add(name)
        near = difflib.get_close_matches(name, sorted(known), n=1)
        _log.warning("%s is no setting%s", name, f", but there is {near[0]}" if near else "")
