"""Real servers on this machine, for demos and tests: Kafka, Kafka Connect with Debezium, PostgreSQL."""

from headrace.local.launch import start
from headrace.local.server import Server
from headrace.local.servers import Servers

__all__ = ["Server", "Servers", "start"]
