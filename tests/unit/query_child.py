"""A query process without Spark, which does what the text of a question tells it; run by tests of its supervision.

echo X         the rows [X]                       pid        the number of this process
until G        the number of this process once there is a file G, or a stopped query
hang           no answer, whatever is said        die        end for want of memory
vanish         be killed, nobody knows by whom    vanish once F    do so, if there is no file F yet
fill           take 300 MB and more               environment      the names of the variables of this process
lie            an answer that says it is longer than may be
noise          an answer that is none
names          the names and row counts of the relations of the question
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import QueryStopped
from headrace.query_processes.error_forms import error_to_json
from headrace.query_processes.wire import Message, WireBroken, receive, send, to_bytes


def is_there(path: Path, stopped: threading.Event) -> bool:
    """Wait for a file, or until this is stopped."""
    while not path.exists():
        if stopped.wait(0.02):
            return False
    return True


def counts_of_relations() -> Callable[[Message], dict[str, int]]:
    """Return a function that reads the relations of each question and returns how many rows they have."""
    reader: Any = None

    def count(message: Message) -> dict[str, int]:
        # Imported here, since it takes most of a second, and few tests need it.
        from headrace.query_processes.question import QuestionReader

        nonlocal reader
        reader = reader or QuestionReader()
        question = reader.read(message)
        return {name: content.rows.num_rows for name, (content, _) in question.relations.items()}

    return count


def exit_code_without_memory() -> int:
    """Return the code with which a query process ends that has too little memory."""
    from headrace.query_processes.child import OUT_OF_MEMORY

    return OUT_OF_MEMORY


def main() -> None:
    wire = socket.socket(fileno=int(sys.argv[-1]))
    if "broken" in sys.argv:
        os._exit(1)
    receive(wire, 0)
    send(wire, Message({"ready": True, "jvm": None}))
    stopped, filled, counts = threading.Event(), list[bytes](), counts_of_relations()

    def answer(message: Message, stopped: threading.Event) -> None:
        verb, *arguments = message.head["sql"].split()
        if verb == "die":
            os._exit(exit_code_without_memory())
        if verb == "vanish" and not (arguments and Path(arguments[1]).exists()):
            if arguments:
                Path(arguments[1]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if verb == "hang":
            return
        if verb == "fill":
            filled.append(b"x" * 300_000_000)
            return
        if verb == "lie":
            wire.sendall(struct.pack(">IQ", 20, 2**60))
        elif verb == "noise":
            wire.sendall(b"\0\0\0\x05\0\0\0\0\0\0\0\0{{{{{")
        elif verb == "until" and not is_there(Path(arguments[0]), stopped):
            send(wire, Message({"error": error_to_json(QueryStopped("stopped"))}))
        else:
            rows = {
                "echo": lambda: arguments,
                "pid": lambda: [str(os.getpid())],
                "until": lambda: [str(os.getpid())],
                "environment": lambda: sorted(os.environ),
                "names": lambda: [f"{name} {count}" for name, count in counts(message).items()],
            }.get(verb, list)()
            send(wire, Message({}, [to_bytes(pa.table({"x": pa.array(rows, pa.string())}))]))

    while True:
        try:
            message = receive(wire, 2**30)
        except WireBroken:
            os._exit(0)
        if "stop" in message.head:
            stopped.set()
            continue
        stopped = threading.Event()
        threading.Thread(target=answer, args=(message, stopped), daemon=True).start()


if __name__ == "__main__":
    main()
