from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from headrace.errors import SetupError
from headrace.project.folder import open_project
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


def test_a_wrong_setting_of_the_environment_is_no_fault_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headrace.yml").write_text("name: shop")
    monkeypatch.setenv("HEADRACE_SPARK_MEMORY", "lots")
    with pytest.raises(SetupError) as error:
        open_project(tmp_path)
    assert "spark_memory: Heap of the local Spark, in the JVM's notation, such as 2g or 512m." in error.value.detail


def test_a_misspelt_name_in_the_environment_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HEADRACE_SMAL_BOUND", "3")
    monkeypatch.setenv("HEADRACE_HOME", "somewhere")
    read_settings()
    read_settings()
    assert [record.getMessage() for record in caplog.records] == [
        "HEADRACE_SMAL_BOUND is no setting, but there is HEADRACE_SMALL_BOUND"
    ]
