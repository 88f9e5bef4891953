"""A push over HTTP as a receiver of traces hears it: the request, below it the epoch, below that its stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.trace_receiver import receiving

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


def test_the_epoch_of_a_push_is_part_of_its_request(
    server_with: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving(monkeypatch) as receiver, server_with() as server:
        pushed = server.push("items", '{"insert": {"id": 1, "name": "nut", "price": "5.50"}}', wait="true")
        assert pushed.status_code == 200, pushed.text
        (request,) = receiver.named("POST /v1/ingress/{table}")
        assert request.attributes["http.response.status_code"] == 200
        (epoch,) = receiver.below(request)
        assert (epoch.name, epoch.attributes["headrace.epoch"]) == ("epoch", server.hr.epoch)
        assert [one.name for one in receiver.below(epoch)] == ["epoch intake", "epoch views", "epoch ledger"]
        assert request.began <= epoch.began <= epoch.ended
