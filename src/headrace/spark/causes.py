"""What Spark has to say of an error, without the wrappings."""

from __future__ import annotations

from py4j.protocol import Py4JError

_LONGEST = 500


def last_cause(error: Exception) -> str:
    """What Spark says at the end of all its wrappings."""
    try:
        said = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    except (Py4JError, OSError):
        # The text lies in the JVM, which may have ended meanwhile.
        return "Spark ended before it could tell why"
    causes = [line.removeprefix("Caused by:").strip() for line in said if line.startswith("Caused by:")]
    # Py4J names the call that failed, and only then the error.
    first = [line for line in said if not line.startswith("An error occurred while calling")]
    return (causes[-1] if causes else (first or said or [""])[0])[:_LONGEST]
