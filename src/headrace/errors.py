"""Every error that Headrace raises, as one tree.

Those marked with a * are transient: nothing of the call was done, nothing is wrong with it, and the same call may well
succeed a little later. All others are terminal: the same call fails again until somebody mends something.

HeadraceError
├── StatementError        SQL that cannot be read: line, column
│   └── UnsupportedStatement   read, but not offered
├── RelationNameError     an unknown or already taken name, a cycle, something in use
│   └── SystemTable       a table that Headrace itself keeps, and that users only read
├── ViewError             a view that cannot be maintained as asked
├── SourceError           a source that cannot be read, or whose columns do not fit
│   ├── LogTruncated      one whose log was removed before it was read
│   └── SourceUnavailable *   one, or a part of it, that does not answer for now
├── FeedError             a changefeed that cannot be made, or not go on
│   └── FeedUnavailable * a changefeed that is not running, or whose sink does not answer for now
├── ProjectError          a project folder that is not as it must be
├── ChangesRejected       changes that break a table's contract, each with its reason
│   ├── KeyReused         an idempotency key that stands for other changes
│   └── EventsRejected    events that are malformed, too large, or not as their schema says
│       └── BadArguments  arguments that a command does not take
├── EventTypeRefused      a version of an event type that cannot be registered
│   └── EventTypeTaken    one that is registered already, otherwise
├── VersionConflict       events for another version of their aggregate than it has
├── CommandRefused        a command that its own rules refuse
├── ViewEvaluationError   a view's own expression failed on a row
├── WorkFailed *          the machine failed while a view or a query was worked out: memory, disk, a lost file
│   └── SparkLost *       Spark ended meanwhile
├── MemoryExceeded        changes or a definition that need more memory than Spark has, alone
├── QueryError            a query that Spark refused or that failed
│   ├── QueryStopped      stopped before it was answered
│   └── ResultTooLarge    more rows than may be answered
├── LedgerError           the durable log cannot be read or written
│   ├── LedgerNotWritten *   an epoch was not written: storage is full, its rights are wrong, Ctrl-C
│   ├── LedgerOutOfSight *   the ledger that was read before is not there: a mount is gone, the home was moved
│   └── EpochExpired      an epoch that is no longer, or not yet, readable
├── HomeBusy *            another process owns the home
├── OwnerLost             this process owned the home, and another took it over
├── HomeBroken            an epoch is committed, but the open home could not take it in
├── HomeClosed            anything asked of a home after close()
├── ReadOnly              a write through a read-only opening
└── SetupError            Java, jars or the machine are not as needed
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


class HeadraceError(Exception):
    """An error with a short message, a detail in sentences and a hint at the next action.

    `about` is the name of the relation or source whose definition met it, where one did; `line` and `column`, from 1,
    are where in the SQL it was met. `transient` says whether the same call may succeed a little later.
    """

    code = "headrace_error"
    transient: bool = False
    about = ""

    # Whether the message itself tells the line and the column.
    tells_position = False

    def __init__(
        self,
        message: str,
        *,
        detail: str = "",
        hint: str = "",
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        where = f" at line {line}, column {column}" if self.tells_position and line is not None else ""
        super().__init__(message + where)
        self.message = message + where
        self.detail = detail
        self.hint = hint
        self.line = line
        self.column = column

    def in_a_line(self) -> str:
        """Message, detail and hint, for a place that has one line."""
        said = ": ".join(part for part in (self.message, self.detail) if part)
        return f"{said}{'' if said.endswith(('.', '?', '!')) else '.'} Hint: {self.hint}." if self.hint else said

    def met_at(self, line: int, column: int) -> None:
        """Tell which statement of a script met the error."""
        self.line, self.column = line, column
        self.detail = f"In the statement at line {line}, column {column}. {self.detail}".rstrip()

    def met_in_script(self, carried_out: str) -> None:
        """Tell what of a script is carried out: to send all of it again would do that twice, so this is terminal."""
        self.detail = f"{self.detail} {carried_out}".lstrip()
        left = "run what is left of the script"
        self.hint = f"{self.hint}; then {left}" if self.hint and not self.transient else left
        self.transient = False

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"detail: {self.detail}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class StatementError(HeadraceError):
    """SQL that cannot be read; knows the line and the column, both from 1."""

    code = "statement_error"
    tells_position = True


class UnsupportedStatement(StatementError):
    """A statement that was read but that Headrace does not offer."""

    code = "unsupported_statement"


class RelationNameError(HeadraceError):
    """A name that is unknown, taken, part of a cycle, or still in use; `unknown` is one that a query could not find.

    `fault` tells apart that nothing is called so, that something is already, and that it is of a kind that will not do.
    """

    code = "name_error"
    unknown = ""
    fault: Literal["unknown", "taken", "kind"] = "unknown"


class SystemTable(RelationNameError):
    """A change of a table that Headrace itself keeps, and that users only read."""

    code = "system_table"


class ViewError(HeadraceError):
    """A view that cannot be maintained as asked."""

    code = "view_error"


class SourceError(HeadraceError):
    """A source that cannot be read, or not into its table."""

    code = "source_error"


class LogTruncated(SourceError):
    """A source whose log no longer has what comes next: only a new snapshot of its tables makes them right again."""

    code = "log_truncated"


class SourceUnavailable(SourceError):
    """A source, or the registry of its schemas, that does not answer for now."""

    code = "source_unavailable"
    transient = True


class FeedError(HeadraceError):
    """A changefeed that cannot be made as asked, or that cannot go on."""

    code = "feed_error"


class FeedUnavailable(FeedError):
    """A changefeed that is not running, or whose sink does not answer for now."""

    code = "feed_unavailable"
    transient = True


class ProjectError(HeadraceError):
    """A project folder that is not as it must be."""

    code = "project_error"


@dataclass(frozen=True)
class Rejection:
    """One change that was not applied, and why."""

    table: str
    index: int
    reason: str
    change: object = None


class ChangesRejected(HeadraceError):
    """Changes that break a table's contract; nothing of that call was applied."""

    code = "changes_rejected"

    def __init__(self, rejections: Sequence[Rejection], *, hint: str = "") -> None:
        self.rejections = tuple(rejections)
        shown = [f"{r.table}[{r.index}]: {r.reason}" for r in self.rejections[:20]]
        if len(self.rejections) > 20:
            shown.append(f"and {len(self.rejections) - 20} more")
        count = len(self.rejections)
        super().__init__(
            f"{count} change{'s' if count != 1 else ''} rejected",
            detail="; ".join(shown),
            hint=hint or "mend the listed changes and send the call again; nothing of it was applied",
        )


class KeyReused(ChangesRejected):
    """Changes under an idempotency key that stands for others, whose receipt would hide that these are not in."""

    code = "key_reused"

    def __init__(self, key: str) -> None:
        super().__init__((), hint="a key stands for one request and its repetitions; use a new one for new changes")
        self.args = (key,)
        self.message = "this idempotency key was sent with another request before"
        # An event store keeps keys with a digest of whom they are for: its sender is told the key that was sent.
        told = re.sub(r"/[0-9a-f]{32}$", "", key)[:60]
        self.detail = f"The key {told!r} stands for other changes; nothing of this call was applied."


class EventsRejected(ChangesRejected):
    """Events that are malformed, too large, or not as their schema says; nothing of that append was taken."""

    code = "events_rejected"

    def __init__(self, rejections: Sequence[Rejection], *, hint: str = "") -> None:
        super().__init__(rejections, hint=hint or "mend the listed events and append again; nothing of it was appended")
        count = len(self.rejections)
        self.message = f"{count} event{'s' if count != 1 else ''} rejected"
        self.args = (self.message,)

    @classmethod
    def of_the_call(cls, store: str, reason: str, *, hint: str = "") -> EventsRejected:
        """An append that no event of it is to blame for: its aggregate, its expected version, its list."""
        again = "mend the call and append again; nothing of it was appended"
        error = cls([Rejection(store, 0, reason)], hint=hint or again)
        error.message = f"this append to {store} is not as it must be"
        error.detail = reason
        error.args = (error.message,)
        return error


class BadArguments(EventsRejected):
    """Arguments that a command does not take; it was not asked, and nothing was changed."""

    code = "bad_arguments"

    def __init__(self, command: str, reasons: Sequence[str], takes: Sequence[str]) -> None:
        hint = f"the command {command} takes {', '.join(takes)}"
        super().__init__([Rejection(command, index, reason) for index, reason in enumerate(reasons)], hint=hint)
        self.message = f"the command {command} does not take these arguments"
        self.detail = "; ".join(reasons[:20])
        self.args = (self.message,)


class EventTypeRefused(HeadraceError):
    """A version of an event type that cannot be registered: its schema, its name, or what is to be encrypted of it."""

    code = "event_type_refused"


class EventTypeTaken(EventTypeRefused):
    """A version of an event type that is registered already, otherwise."""

    code = "event_type_taken"


class VersionConflict(HeadraceError):
    """Events for another version of their aggregate than it has; `version` is the one that it has, 0 for none."""

    code = "version_conflict"

    def __init__(self, aggregate_type: str, aggregate_id: str, expected: int | str, version: int) -> None:
        super().__init__(
            f"{aggregate_type} {aggregate_id[:60]} is at version {version}",
            detail=f"Version {expected} was expected; nothing was appended.",
            hint="read the aggregate again, decide anew, and append with the version that it has",
        )
        self.expected = expected
        self.version = version


class CommandRefused(HeadraceError):
    """A command that its own rules refuse; nothing was changed."""

    code = "command_refused"


class ViewEvaluationError(HeadraceError):
    """A view's own expression failed on a row; the call that brought it was rejected."""

    code = "view_evaluation_error"

    def __init__(
        self,
        message: str,
        *,
        view: str = "",
        expression: str = "",
        row: object = None,
        detail: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.view = view
        self.expression = expression
        self.row = row


class WorkFailed(HeadraceError):
    """The machine failed while a view or a query was worked out; nothing of it was committed, nobody is to blame.

    `disconnected` says whether a connection to Spark broke, which may be the first that is seen of its end; `of_memory`
    whether there was not enough memory, and `alone` whether nothing else was at work in Spark meanwhile.
    """

    code = "work_failed"
    transient = True
    disconnected = False
    of_memory = False
    alone = False


class SparkLost(WorkFailed):
    """Spark ended while it worked; nothing of that was committed."""

    code = "spark_lost"


class MemoryExceeded(HeadraceError):
    """Changes, or a definition, that need more memory than Spark has: alone, they ended it; nothing was committed."""

    code = "memory_exceeded"


class QueryError(HeadraceError):
    """A query that Spark refused or that failed while it ran."""

    code = "query_error"


class QueryStopped(QueryError):
    """A query that was stopped before it was answered; its Spark jobs are cancelled."""

    code = "query_stopped"


class ResultTooLarge(QueryError):
    """A query with more rows than may be answered at once."""

    code = "result_too_large"


class LedgerError(HeadraceError):
    """The durable log cannot be read or written."""

    code = "ledger_error"


class LedgerNotWritten(LedgerError):
    """An epoch was not written, for want of storage or time; nothing of it was committed, and it can be sent again."""

    transient = True


class LedgerOutOfSight(LedgerError):
    """The ledger that was read before is not there now, or another one is; its owner may go on with it elsewhere."""

    transient = True


class EpochExpired(LedgerError):
    """An epoch that is no longer, or not yet, readable."""

    code = "epoch_expired"


class HomeBusy(HeadraceError):
    """Another process owns the home."""

    code = "home_busy"
    transient = True


class OwnerLost(HeadraceError):
    """This process owned the home until another took it over; it can commit nothing any more."""

    code = "owner_lost"


class HomeBroken(HeadraceError):
    """An epoch is committed, but this open home could not take it in; it goes on when it is opened again.

    `included` tells whether the call that met it is part of that epoch; otherwise nothing of the call was done.
    """

    code = "home_broken"

    def __init__(self, epoch: int, cause: BaseException, *, included: bool = False) -> None:
        this = f"This call is part of epoch {epoch}, once." if included else "Nothing of this call was done."
        super().__init__(
            f"epoch {epoch} is committed, but this open home could not take it in",
            detail=f"{type(cause).__name__}: {cause}. {this}",
            hint="open the home again: its newest epoch says what is there",
        )
        self.epoch = epoch
        self.cause = cause
        self.included = included


class HomeClosed(HeadraceError):
    """Something was asked of a home that was closed."""

    code = "home_closed"

    def __init__(self, home: object) -> None:
        super().__init__(
            f"the home {home} is closed",
            detail="Everything that was committed is in it.",
            hint=f"open it again: headrace.open({str(home)!r})",
        )


class ReadOnly(HeadraceError):
    """A write was asked of a home that was opened read-only."""

    code = "read_only"


class SetupError(HeadraceError):
    """Java, jars or the machine are not as Headrace needs them."""

    code = "setup_error"
