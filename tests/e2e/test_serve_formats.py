"""Messages of Debezium, DMS and GoldenGate over HTTP: the same decoders as of captured sources, all or nothing."""

from __future__ import annotations

import json
from typing import Any

from tests.debezium_events import decimal, envelope, envelope_schema, field, wrapped
from tests.e2e.conftest import Served

FIELDS = [field("id", "int32", optional=False), field("name", "string"), decimal("price", 2, 10)]
PLACEHOLDER = "__debezium_unavailable_value"


def lines(*values: Any) -> str:
    return "\n".join(json.dumps(value) for value in values)


def row(number: int, name: str | None, price: str | None) -> dict[str, Any]:
    return {"id": number, "name": name, "price": price}


def test_debezium_with_and_without_its_schema(server: Served) -> None:
    schema = envelope_schema(FIELDS)
    # 1.50 and 2.25 as the digits of a precise decimal.
    first = envelope("c", None, row(1, "a", "AJY="))
    second = envelope("r", None, row(2, "b", "AOE="))
    for body in (
        lines(first, second),
        json.dumps([first, second]),
        lines(wrapped(first, schema), wrapped(second, schema)),
    ):
        answer = server.push("parts", body, update_format="debezium")
        assert (answer.status_code, answer.json().get("applied")) == (200, {"parts": 2}), answer.text
        assert server.rows("parts") == [row(1, "a", "1.50"), row(2, "b", "2.25")]
    body = lines(
        wrapped(envelope("u", row(1, "a", None), row(1, PLACEHOLDER, "AOE=")), schema),
        envelope("u", row(2, "b", None), row(3, "b", "AOE=")),
        {"ts_ms": 1700000000000},
        None,
        envelope("m", message={"prefix": "p", "content": ""}),
    )
    answer = server.push("parts", body, update_format="debezium")
    assert (answer.status_code, answer.json().get("applied")) == (200, {"parts": 3}), answer.text
    assert server.rows("parts") == [row(1, "a", "2.25"), row(3, "b", "2.25")]
    body = lines(envelope("d", row(1, None, None)), wrapped(envelope("d", row(3, None, None)), schema))
    assert server.push("parts", body, update_format="debezium").status_code == 200
    assert server.rows("parts") == []


def test_debezium_into_a_table_without_a_key(server: Served) -> None:
    old, new = {"a": 1, "b": "x"}, {"a": 1, "b": "y"}
    body = lines(envelope("c", None, old), envelope("c", None, old), envelope("u", old, new))
    assert server.push("notes", body, update_format="debezium").status_code == 200
    assert server.rows("notes") == [old, new]
    refused = server.push("notes", lines(envelope("u", None, new)), update_format="debezium")
    assert refused.status_code == 422
    assert "no key to find it by" in refused.json()["rejections"][0]["reason"]


def test_the_options_of_a_format_are_parameters(server: Served) -> None:
    text = lines(envelope("c", None, row(1, "a", "1.50")))
    refused = server.push("parts", text, update_format="debezium")
    assert refused.status_code == 422
    assert "decimal_mode = 'string'" in refused.text
    assert server.push("parts", text, update_format="debezium", decimal_mode="string").status_code == 200
    assert server.rows("parts") == [row(1, "a", "1.50")]
    assert server.push("parts", text, update_format="debezium", decimal_mode="other").status_code == 422
    unknown = server.push("parts", text, update_format="debezium", time_units="at: days")
    assert (unknown.status_code, "time_units" in unknown.text) == (400, True)


def test_what_cannot_be_decoded_is_told_with_its_line(server: Served) -> None:
    body = lines(
        envelope("c", None, row(1, "a", None)),
        {"op": "x", "after": {}},
        envelope("t"),
        envelope("c", None, {**row(2, "a", None), "colour": "red"}),
        envelope("u", None, row(7, PLACEHOLDER, None)),
        {"insert": row(3, "a", None)},
    )
    answer = server.push("parts", body, update_format="debezium")
    assert answer.status_code == 422
    found = {one["line"]: one["reason"] for one in answer.json()["rejections"]}
    assert sorted(found) == [2, 3, 4, 6]
    assert "DELETE FROM parts" in found[3]
    assert "colour" in found[4]
    assert server.rows("parts") == []
    # What only the table can tell is told once the rest can be read.
    answer = server.push("parts", lines(envelope("u", None, row(7, PLACEHOLDER, None))), update_format="debezium")
    assert answer.json()["rejections"] == [
        {"line": 1, "reason": "there is no row of this key whose other columns the update could keep"}
    ]
    deep = '{"op":"c","after":' + '{"a":' * 500 + "1" + "}" * 501
    assert "nested too deeply" in server.push("parts", deep, update_format="debezium").text


def test_a_key_stands_for_the_options_too(server: Served) -> None:
    def send(**parameters: Any) -> int:
        body = lines(envelope("c", None, row(1, "a", None)))
        parameters = {"update_format": "debezium", "wait": "true", **parameters}
        headers = {"Idempotency-Key": "formats-1"}
        return server.client.post("/v1/ingress/parts", params=parameters, content=body, headers=headers).status_code

    assert (send(), send(), send(decimal_mode="string")) == (200, 200, 422)


def test_dms_and_goldengate(server: Served) -> None:
    def dms(operation: str, data: Any, kind: str = "data") -> dict[str, Any]:
        metadata = {"record-type": kind, "operation": operation, "table-name": "parts"}
        return {"data": data, "metadata": metadata}

    body = lines(
        dms("create-table", None, "control"),
        dms("load", row(1, "a", "1.50")),
        dms("insert", row(2, "b", "2")),
        dms("update", row(2, "c", "3")),
        dms("delete", {"id": 1}),
    )
    assert server.push("parts", body, update_format="dms").json()["applied"] == {"parts": 4}
    assert server.rows("parts") == [row(2, "c", "3.00")]

    def gg(operation: str, before: Any, after: Any) -> dict[str, Any]:
        return {"table": "SHOP.PARTS", "op_type": operation, "pos": "1", "before": before, "after": after}

    body = lines(
        gg("I", None, {"ID": 5, "NAME": "e", "PRICE": 1.5}),
        gg("U", {"ID": 2}, {"ID": 2, "PRICE": "4"}),
        gg("D", {"ID": 5}, None),
    )
    assert server.push("parts", body, update_format="goldengate").json()["applied"] == {"parts": 3}
    assert server.rows("parts") == [row(2, "c", "4.00")]


def test_a_part_of_a_row(server: Served) -> None:
    assert (
        server.push("parts", lines({"insert": row(1, "a", "1")}, {"update": {"id": 1, "price": 2}})).status_code == 200
    )
    assert server.rows("parts") == [row(1, "a", "2.00")]
    assert server.push("parts", lines({"update": {"id": 9, "price": 2}})).status_code == 422
