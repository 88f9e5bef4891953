"""What the asker of a query hears when it was more than a query may be."""

from __future__ import annotations

from headrace.errors import QueryError, ResultTooLarge, WorkFailed


def too_much_memory() -> QueryError:
    """The query ended its process, or would have."""
    return QueryError(
        "the query needed more memory than a query may have",
        detail="Nothing else was touched.",
        hint="ask for less at a time; HEADRACE_SERVE_QUERY_MEMORY sets how much there is",
    )


def too_many_bytes(most: int) -> ResultTooLarge:
    """The query has more bytes than it may be answered with."""
    return ResultTooLarge(
        f"the query's rows have more than {most} bytes",
        detail="The server answers with no more than that.",
        hint="ask for fewer rows or columns at a time; HEADRACE_SERVE_QUERY_BYTES sets the bound",
    )


def too_large_a_change(most: int) -> ResultTooLarge:
    """The statement changes more than a server works out at once."""
    return ResultTooLarge(
        f"the rows that the statement changes have more than {most} bytes",
        detail="The server works out no more than that at once. Nothing was changed.",
        hint="change fewer rows at a time, or push them; HEADRACE_SERVE_QUERY_BYTES sets the bound",
    )


def lost() -> WorkFailed:
    """Its process ended twice, and nobody here knows why."""
    return WorkFailed(
        "the query's process ended while it worked",
        detail="It was asked again in another process, and that process ended too. Nothing else was touched.",
        hint="ask again later; the log of the server or of the machine tells why",
    )


def closed() -> WorkFailed:
    """The server ends."""
    return WorkFailed(
        "no more queries are answered", detail="The server is shutting down.", hint="ask again when it is back"
    )


def not_run(reason: str) -> WorkFailed:
    """No process can be started that could run it."""
    return WorkFailed(
        "the query could not be run",
        detail=f"The process that runs queries does not start: {reason.rstrip('.')}.",
        hint="ask again later; the server's log tells more",
    )
