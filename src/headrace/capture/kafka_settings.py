"""What statements may say to Kafka's own client: any setting of librdkafka, but for those that run programs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from headrace.errors import SetupError

# Settings by which the library loads code or runs commands: with these, who may define a source could run anything.
PROGRAMS = frozenset({"plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.providers"})


def given_settings(options: Mapping[str, Any]) -> dict[str, str]:
    """The settings that options name, as 'kafka.sasl.password' does, by the library's own names."""
    return {name[6:]: str(value) for name, value in options.items() if name.startswith("kafka.")}


def kafka_library() -> Any:
    """The client, which is no part of a plain installation."""
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise SetupError(
            "confluent-kafka is not installed", hint="pip install 'headrace[kafka]', then try again"
        ) from error
