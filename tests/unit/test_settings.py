from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from headrace.errors import SetupError
from headrace.settings import Settings, read_settings


def test_the_environment_sets_what_the_caller_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SMALL_BOUND", "10")
    monkeypatch.setenv("HEADRACE_TOMBSTONE_RETENTION", "P1D")
    settings = Settings(small_bound=20)
    assert settings.small_bound == 20
    assert settings.tombstone_retention == timedelta(days=1)


@pytest.mark.parametrize("wrong", [{"small_bound": -1}, {"spark_memory": "lots"}, {"spark_cores": 0}, {"nonsense": 1}])
def test_a_wrong_setting_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)  # type: ignore[arg-type]


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().small_bound = 1  # type: ignore[misc]


def test_every_setting_is_documented() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_a_setting_that_cannot_be_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_OWNER_TIMEOUT", "30")
    with pytest.raises(SetupError, match="a setting is not as it must be") as raised:
        read_settings(small_bound=-1)
    assert "owner_timeout" in raised.value.detail
    assert "small_bound" in raised.value.detail
