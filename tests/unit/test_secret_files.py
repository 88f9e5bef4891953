"""Secrets that statements were written with: in files of the home, and in nothing else."""

from __future__ import annotations

import base64
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headrace.errors import FeedError, HeadraceError
from headrace.storage.objects import location_of
from headrace.storage.secret_files import FOLDER, kept_apart
from tests.bare_home import BareHome
from tests.waiting import until

_INTO = "CREATE CHANGEFEED f FOR TABLE t INTO POSTGRES 'postgresql://me:hunt%40er22@127.0.0.1:9/shop/orders'"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[BareHome]:
    opened = BareHome(tmp_path / "home")
    opened.create_table("t", StructType([StructField("id", LongType(), False)]), ("id",))
    yield opened
    opened.close()


def kept(home: BareHome) -> list[Path]:
    folder = home.core.path / FOLDER
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_the_password_of_a_url_lies_in_a_file_for_its_owner_alone(home: BareHome) -> None:
    home.execute(_INTO)
    (file,) = kept(home)
    assert file.read_text() == "hunt@er22"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    feed = home.core.catalog.feeds["f"]
    assert feed.location == "postgresql://me@127.0.0.1:9/shop/orders"
    assert feed.options["password"] == f"file:{file}"
    shown = str(home.execute("SHOW CHANGEFEEDS").to_pylist())
    # The feed would replace files of its position meanwhile.
    home.feeds.close()
    others = [path for path in Path(home.core.path).rglob("*") if path.is_file() and path != file]
    assert "hunt" not in shown
    assert not [path for path in others if b"hunt" in path.read_bytes()]


def test_it_goes_with_its_feed_and_when_its_option_is_another(home: BareHome) -> None:
    home.execute(_INTO)
    (first,) = kept(home)
    home.execute("ALTER CHANGEFEED f SET (password = 'other-hunter')")
    (second,) = kept(home)
    assert second != first
    assert second.read_text() == "other-hunter"
    home.execute("DROP CHANGEFEED f")
    assert kept(home) == []


def test_nothing_is_kept_of_a_statement_that_comes_to_nothing(home: BareHome) -> None:
    with pytest.raises(HeadraceError):
        home.execute(_INTO + " WITH (mode = 'merge')")
    assert kept(home) == []


def test_a_plain_secret_of_an_option_is_kept_apart_too(home: BareHome) -> None:
    secret = "whsec_" + base64.b64encode(bytes(32)).decode()
    home.execute(f"CREATE CHANGEFEED f FOR TABLE t INTO WEBHOOK 'https://headrace.invalid/' WITH (secret = '{secret}')")
    (file,) = kept(home)
    assert file.read_text() == secret
    assert home.core.catalog.feeds["f"].options["secret"] == f"file:{file}"


def test_where_a_sink_has_no_password_a_url_may_have_none(home: BareHome) -> None:
    with pytest.raises(FeedError, match="has a user or a password in it"):
        home.execute("CREATE CHANGEFEED f FOR TABLE t INTO WEBHOOK 'https://me:hunter22@127.0.0.1:9/'")


def test_in_an_object_store_nothing_is_kept() -> None:
    bucket = location_of("s3://bucket/home", {"region": "nowhere"})
    assert kept_apart(bucket, "redis://:pw@h/0", {}) == ("redis://:pw@h/0", {})


def test_secrets_stay_where_the_home_is_reached_by_another_path(tmp_path: Path, home: BareHome) -> None:
    home.execute(_INTO)
    (file,) = kept(home)
    home.close()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    again = BareHome(tmp_path / "link")
    try:
        with pytest.raises(HeadraceError):
            again.execute(_INTO.replace(" f ", " g ") + " WITH (mode = 'merge')")
        assert file.read_text() == "hunt@er22"
    finally:
        again.close()


def test_a_folder_by_reference_that_is_a_relative_path_is_refused_and_not_made(
    home: BareHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUT", "out")
    with pytest.raises(FeedError, match="relative path"):
        home.execute("CREATE CHANGEFEED f FOR TABLE t INTO FILES 'env:OUT'")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    home.execute("CREATE CHANGEFEED f FOR TABLE t INTO FILES 'env:OUT'")
    until((tmp_path / "out").is_dir)


@pytest.mark.parametrize("content", ["first:a\nsecond/hunter two\n", "hunter\n22\n", 'it\'s "hunter" \\ 22'])
@pytest.mark.parametrize("sink", ["KAFKA", "FILES", "WEBHOOK", "REDIS", "POSTGRES", "DYNAMODB"])
def test_no_error_tells_what_a_location_by_reference_is(
    home: BareHome, tmp_path: Path, sink: str, content: str
) -> None:
    (tmp_path / "elsewhere").write_text(content)
    told = ""
    try:
        home.execute(f"CREATE CHANGEFEED f FOR TABLE t INTO {sink} 'file:{tmp_path}/elsewhere'")
    except HeadraceError as error:
        told = str(error)
    assert "hunter" not in told
