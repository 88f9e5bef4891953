"""A query process without Spark, which does what the text of a question tells it; run by tests of its supervision.

echo X         the rows [X]                       pid        the number of this process
wait S         the rows [] after S seconds, or a stopped query
hang           no answer, whatever is said        die        end for want of memory
fall G         do so once there is a file G       fall G once F    so, and make a file F; if there is one, hang
late G         its number, once there is a file G
hang once F    so, if there is no file F yet      again F    so the first time, until it is stopped, noted in F
die once F     do so, if there is no file F yet   fill       take 300 MB and more
vanish         be killed, nobody knows by whom    vanish once F
lie            an answer that says it is longer than may be
noise          an answer that is none
names          the names and row counts of the relations of the question
environment    the names of the variables of this process
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa

from headrace.errors import QueryStopped
from headrace.query_processes.child import OUT_OF_MEMORY
from headrace.query_processes.error_forms import error_to_json
from headrace.query_processes.question import Question, QuestionReader
from headrace.query_processes.wire import Message, WireBroken, receive, send, to_bytes


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def main() -> None:
    wire = socket.socket(fileno=int(sys.argv[-1]))
    if "broken" in sys.argv:
        os._exit(3)
    receive(wire, 0)
    send(wire, Message({"ready": True, "jvm": None}))
    reader, stopped, speaking = QuestionReader(), dict[int, threading.Event](), threading.Lock()

    def answer(number: int, question: Question) -> None:
        verb, *arguments = question.sql.split()
        if verb in ("die", "vanish") and (arguments[:1] != ["once"] or not Path(arguments[1]).exists()):
            if arguments:
                Path(arguments[1]).touch()
            if verb == "vanish":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(OUT_OF_MEMORY)
        if verb == "fall":
            if arguments[1:] and Path(arguments[2]).exists():
                return
            wait_for(Path(arguments[0]))
            if arguments[1:]:
                Path(arguments[2]).touch()
            os._exit(OUT_OF_MEMORY)
        if verb == "late":
            wait_for(Path(arguments[0]))
        if verb == "again" and not (asked := Path(f"{arguments[0]}.asked")).exists():
            asked.touch()
            stopped[number].wait()
            Path(arguments[0]).write_text(str(os.getpid()))
        if verb == "hang" and not (arguments and Path(arguments[1]).exists()):
            if arguments:
                Path(arguments[1]).touch()
            return
        if verb == "fill":
            filled.append(b"x" * 300_000_000)
            return
        if verb == "wait" and stopped[number].wait(float(arguments[0])):
            answered = Message({"answer": number, "error": error_to_json(QueryStopped("stopped"))})
        else:
            rows = {
                "echo": lambda: arguments,
                "pid": lambda: [str(os.getpid())],
                "late": lambda: [str(os.getpid())],
                "environment": lambda: sorted(os.environ),
                "names": lambda: [f"{name} {one.rows.num_rows}" for name, (one, _) in question.relations.items()],
            }.get(verb, list)()
            answered = Message({"answer": number}, [to_bytes(pa.table({"x": pa.array(rows, pa.string())}))])
        with speaking:
            if verb == "lie":
                wire.sendall(struct.pack(">IQ", 20, 2**60))
            elif verb == "noise":
                wire.sendall(b"\0\0\0\x05\0\0\0\0\0\0\0\0{{{{{")
            else:
                send(wire, answered)

    filled: list[bytes] = []
    while True:
        try:
            message = receive(wire, 2**30)
        except WireBroken:
            os._exit(0)
        if "stop" in message.head:
            stopped[message.head["stop"]].set()
            continue
        number = message.head["ask"]
        stopped[number] = threading.Event()
        threading.Thread(target=answer, args=(number, reader.read(message)), daemon=True).start()


if __name__ == "__main__":
    main()
