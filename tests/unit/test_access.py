"""Keys, roles and the audit trail of a home: made, kept as digests, judged, revoked, and never lost to each other."""

from __future__ import annotations

import json
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headrace.access.audit import Audit, acting
from headrace.access.book import Book
from headrace.access.grants import Access, read_grant, unlimited
from headrace.access.keys import create_key, digest_of, read_keys, revoke_key, set_stand_in
from headrace.access.ring import KeyRing
from headrace.errors import LedgerError, SetupError
from headrace.sql.statements import parse
from headrace.statements.audited import noted
from headrace.storage.objects import Location
from tests.bare_home import BareHome
from tests.command_line import code_of
from tests.small_homes import make_home
from tests.waiting import until


def _access(*grants: str, **stand_ins: str) -> Access:
    return Access("somebody", tuple(read_grant(one) for one in grants), stand_ins)


def test_roles_include_each_other_and_patterns_cover_names() -> None:
    reader, writer, admin = _access("read:sales_*"), _access("write:orders"), _access("admin:*")
    assert (reader.may_read("SALES_2026"), reader.may_read("orders")) == (True, False)
    assert not reader.may_write("sales_1")
    assert (writer.may_read("orders"), writer.may_write("orders"), writer.may_write("order")) == (True, True, False)
    assert admin.is_unlimited
    assert all((admin.may_read("x"), admin.may_write("x"), admin.may_administer("x"), admin.may_observe()))
    assert not any(one.may_observe() or one.may_administer() for one in (reader, writer, _access("admin:orders")))
    watcher = _access("observe")
    assert watcher.may_observe()
    assert not any((watcher.may_read("x"), watcher.may_write("x"), watcher.may_administer("x")))
    assert not any((_access().may_read("x"), _access().may_write("x"), _access().may_observe()))


def test_no_pattern_covers_what_headrace_keeps_itself() -> None:
    assert not _access("read:*").may_read("dead_letters", system=True)
    assert _access("read:dead_letters").may_read("dead_letters", system=True)
    assert _access("admin:*").may_read("dead_letters", system=True)


def test_a_view_stands_in_for_all_but_administrators() -> None:
    assert _access("read:*", customers="customers_public").reads_in_place_of("Customers") == "customers_public"
    assert _access("write:*", customers="customers_public").reads_in_place_of("customers") == "customers_public"
    assert _access("admin:customers", customers="customers_public").reads_in_place_of("customers") == "customers"
    own = _access("read:customers=customers_of_oslo", customers="customers_public")
    assert own.reads_in_place_of("customers") == "customers_of_oslo"
    assert own.reads_in_place_of("orders") == "orders"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all:*",
        "admin:",
        "read:",
        "read:=a",
        "read:a b",
        "read:../x",
        "read:a=b=c",
        "write:a=b",
        "read:a*=b",
        "read:a=b*",
        "read:a=",
        "x",
    ],
)
def test_what_is_no_grant_is_refused(text: str) -> None:
    with pytest.raises(SetupError, match="is no grant"):
        read_grant(text)


def test_a_key_opens_until_it_is_revoked_or_expires(location: Location) -> None:
    made, token = create_key(location, "ci", [read_grant("write:orders")], "ann")
    ring = KeyRing(location)
    access = ring.access_of(bytes.fromhex(digest_of(token)))
    assert access is not None
    assert (access.who, access.may_write("orders")) == (f"ci ({made.id})", True)
    forged = token[:-1] + ("A" if token[-1] != "A" else "B")
    for other in (forged, made.id, "", token + "x", token.upper(), "hr_00000000_" + "A" * 43):
        assert ring.access_of(bytes.fromhex(digest_of(other))) is None
    until = datetime.now(UTC) + timedelta(hours=1)
    _, short = create_key(location, "short", [read_grant("read:*")], "ann", until)
    keys = read_keys(location)
    assert keys.access_of(digest_of(short)) is not None
    assert keys.access_of(digest_of(short), until + timedelta(seconds=1)) is None
    revoke_key(location, "ci")
    ring.look()
    assert ring.access_of(bytes.fromhex(digest_of(token))) is None
    # That all keys are gone does not open the door.
    revoke_key(location, "short")
    ring.look()
    assert ring.has_keys


def test_nothing_of_a_key_that_opens_anything_is_kept(tmp_path: Path) -> None:
    _, token = create_key(tmp_path, "ci", [read_grant("read:*")], "ann")
    # The secret itself may have the sign in it that stands between the parts.
    secret = token.split("_", 2)[2]
    Audit(tmp_path).note("CREATE KEY ci")
    files = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert files
    for one in files:
        assert secret.encode() not in one.read_bytes()
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "access").stat().st_mode) == 0o700


def test_two_who_change_the_keys_at_once_lose_nothing(location: Location) -> None:
    with ThreadPoolExecutor(4) as many:
        made = list(many.map(lambda n: create_key(location, f"key {n}", [read_grant("read:*")], "ann")[0], range(16)))
    assert set(read_keys(location).keys) == {one.id for one in made}


def test_a_name_is_in_force_once() -> None:
    with pytest.raises(SetupError, match="a key needs a name"):
        create_key(Path("nowhere"), "a/b", [read_grant("read:*")], "ann")
    with pytest.raises(SetupError, match="may do nothing"):
        create_key(Path("nowhere"), "a", [], "ann")


def test_a_server_with_keys_that_cannot_be_read_lets_nobody_in(tmp_path: Path) -> None:
    create_key(tmp_path, "ci", [read_grant("read:*")], "ann")
    newest = tmp_path / "access" / "keys" / f"{Book(tmp_path).newest():012d}.json"
    for broken in (b"{", b"[]", b'{"keys": [{"id": 1}]}', b'{"keys": [{"id": "x", "grants": ["root:*"]}]}'):
        newest.write_bytes(broken)
        with pytest.raises(LedgerError):
            KeyRing(tmp_path)
    newest.unlink()
    # The version before it is not there either: a book that was never written has no keys.
    assert not KeyRing(tmp_path).has_keys


def test_keys_that_cannot_be_read_any_more_stay_as_they_were(tmp_path: Path) -> None:
    _, token = create_key(tmp_path, "ci", [read_grant("read:*")], "ann")
    ring = KeyRing(tmp_path)
    (tmp_path / "access" / "keys" / "000000000099.json").write_text("{")
    with pytest.raises(LedgerError):
        ring.look()
    assert ring.access_of(bytes.fromhex(digest_of(token))) is not None


def _opens(ring: KeyRing, token: str) -> bool:
    return ring.access_of(bytes.fromhex(digest_of(token))) is not None


def test_keys_that_are_gone_stay_in_force(location: Location) -> None:
    _, token = create_key(location, "ci", [read_grant("read:*")], "ann")
    set_stand_in(location, "people", "people_public")
    ring = KeyRing(location)
    if isinstance(location, Path):
        shutil.rmtree(location / "access")
    else:
        (location / "access").remove_all()
    for _ in range(2):
        with pytest.raises(LedgerError, match="the keys of the home are gone"):
            ring.look()
    assert (ring.has_keys, _opens(ring, token), ring.stand_ins) == (True, True, {"people": "people_public"})
    # Nor does a key of somebody who makes the folder anew open anything.
    _, other = create_key(location, "other", [read_grant("admin:*")], "eve")
    with pytest.raises(LedgerError, match="older than those in force"):
        ring.look()
    assert not _opens(ring, other)


def _put_back(home: Path, copy: str) -> None:
    """Have the folder of a home be a copy of it, and keep the one that it had as another."""
    shutil.move(home / "access", home / "away")
    shutil.copytree(home / copy, home / "access")


@pytest.mark.parametrize("made", range(4))
def test_a_copy_from_before_does_not_bring_a_revoked_key_back(tmp_path: Path, made: int) -> None:
    _, leaked = create_key(tmp_path, "leaked", [read_grant("admin:*")], "ann")
    shutil.copytree(tmp_path / "access", tmp_path / "copy")
    ring = KeyRing(tmp_path)
    revoke_key(tmp_path, "leaked")
    set_stand_in(tmp_path, "people", "people_public")
    ring.look()
    _put_back(tmp_path, "copy")
    # One version fewer than there were, as many, or more, as whoever put it back goes on to make keys.
    others = [create_key(tmp_path, f"other {n}", [read_grant("read:*")], "ann")[1] for n in range(made)]
    for _ in range(2):
        with pytest.raises(LedgerError, match="older than those in force" if made < 2 else "not made of those"):
            ring.look()
    assert (_opens(ring, leaked), ring.stand_ins) == (False, {"people": "people_public"})
    assert not any(_opens(ring, one) for one in others)
    # Nor where the folder that was right is laid over the one that was put back, and versions of both are there.
    shutil.copytree(tmp_path / "away", tmp_path / "access", dirs_exist_ok=True)
    if made > 2:
        with pytest.raises(LedgerError, match="not made of those"):
            ring.look()
    else:
        ring.look()
    assert not _opens(ring, leaked)


def test_keys_that_are_put_back_as_they_were_are_followed_again(tmp_path: Path) -> None:
    create_key(tmp_path, "ci", [read_grant("read:*")], "ann")
    shutil.copytree(tmp_path / "access", tmp_path / "copy")
    create_key(tmp_path, "other", [read_grant("read:*")], "ann")
    ring = KeyRing(tmp_path)
    _put_back(tmp_path, "copy")
    create_key(tmp_path, "third", [read_grant("read:*")], "ann")
    with pytest.raises(LedgerError):
        ring.look()
    shutil.rmtree(tmp_path / "access")
    (tmp_path / "away").rename(tmp_path / "access")
    ring.look()
    _, fourth = create_key(tmp_path, "fourth", [read_grant("read:*")], "ann")
    ring.look()
    assert _opens(ring, fourth)


def test_a_key_that_is_revoked_in_a_copy_is_refused_all_the_same(tmp_path: Path) -> None:
    _, token = create_key(tmp_path, "ci", [read_grant("read:*")], "ann")
    shutil.copytree(tmp_path / "access", tmp_path / "copy")
    create_key(tmp_path, "other", [read_grant("read:*")], "ann")
    ring = KeyRing(tmp_path)
    _put_back(tmp_path, "copy")
    revoke_key(tmp_path, "ci")
    with pytest.raises(LedgerError, match="not made of those in force"):
        ring.look()
    assert not _opens(ring, token)


def test_many_versions_between_two_looks_are_followed(location: Location) -> None:
    create_key(location, "ci", [read_grant("read:*")], "ann")
    ring = KeyRing(location)
    for number in range(7):
        create_key(location, f"key {number}", [read_grant("read:*")], "ann")
        revoke_key(location, f"key {number}")
    _, token = create_key(location, "last", [read_grant("read:*")], "ann")
    ring.look()
    assert _opens(ring, token)


def _written_by_an_older_headrace(home: Path, name: str) -> str:
    """Make a key as a release that does not know what a version follows: it keeps all that it finds."""
    number, document = Book(home).read()
    before = document.get("follows")
    _, token = create_key(home, name, [read_grant("read:*")], "ann")
    file = home / "access" / "keys" / f"{number + 1:012d}.json"
    written = json.loads(file.read_text())
    del written["follows"]
    file.write_text(json.dumps(written if before is None else {**written, "follows": before}))
    return token


def test_versions_of_an_older_headrace_are_followed_as_they_lie(tmp_path: Path) -> None:
    for name in ("first", "second"):
        _written_by_an_older_headrace(tmp_path, name)
    ring = KeyRing(tmp_path)
    for name in ("third", "fourth"):
        token = _written_by_an_older_headrace(tmp_path, name)
        ring.look()
        assert _opens(ring, token)
    # The two work on one home for a while.
    create_key(tmp_path, "newer", [read_grant("read:*")], "ann")
    tokens = [_written_by_an_older_headrace(tmp_path, name) for name in ("fifth", "sixth")]
    tokens.append(create_key(tmp_path, "newest", [read_grant("read:*")], "ann")[1])
    ring.look()
    assert all(_opens(ring, one) for one in tokens)


def test_that_there_were_keys_is_never_forgotten(tmp_path: Path) -> None:
    create_key(tmp_path, "ci", [read_grant("read:*")], "ann")
    ring = KeyRing(tmp_path)
    # A version without any key, by whomever: it opens the door to nobody.
    Book(tmp_path).change(lambda document: {**document, "keys": []})
    ring.look()
    assert (len(read_keys(tmp_path).keys), ring.has_keys) == (0, True)


def test_that_keys_are_not_renewed_is_known_and_logged_until_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.access.ring._LOOK_SECONDS", 0.01)
    create_key(tmp_path, "ci", [read_grant("read:*")], "ann")
    ring = KeyRing(tmp_path)
    ring.start()
    assert ring.failure is None

    (tmp_path / "access").rename(tmp_path / "away")
    until(lambda: ring.failure is not None)
    assert "the keys of the home are gone" in str(ring.failure)
    (tmp_path / "away").rename(tmp_path / "access")
    # What is no number is no version.
    (tmp_path / "access" / "keys" / "².json").touch()
    until(lambda: ring.failure is None)
    (tmp_path / "access" / "keys" / "000000000099.json").write_text("{")
    until(lambda: ring.failure is not None)
    ring.close()
    told = [one.getMessage() for one in caplog.records if one.name == "headrace.access"]
    assert told[0].startswith("the keys of the home are not renewed: the keys of the home are gone")
    assert told[1] == "the keys of the home are renewed again"
    assert told[2].startswith("the keys of the home are not renewed: the keys of the home cannot be read")
    assert len(told) == 3


def test_keys_where_no_folder_can_be_are_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "access").touch()
    with pytest.raises(LedgerError):
        KeyRing(tmp_path)


def test_the_audit_trail_is_appended_and_survives_a_torn_line(location: Location) -> None:
    audit = Audit(location)
    audit.note("CREATE TABLE name=t")
    with acting("ci (hr_1)"):
        audit.note("DROP VIEW name=v", "name_error")
    if isinstance(location, Path):
        with open(location / "access" / "audit.ndjson", "ab") as file:
            file.write(b'{"at": "cut o')
    audit.note("line\nbreak \x1b[31m", who="x" * 10_000)
    entries = list(audit.entries())
    assert [one["what"] for one in entries] == ["CREATE TABLE name=t", "DROP VIEW name=v", "line\nbreak \x1b[31m"]
    assert (entries[1]["who"], entries[1]["outcome"]) == ("ci (hr_1)", "name_error")
    assert "@" in entries[0]["who"]
    assert len(entries[2]["who"]) == 500
    assert datetime.fromisoformat(entries[0]["at"]).tzinfo is not None


def test_an_entry_that_a_full_disk_takes_a_part_of_is_in_the_log_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    audit = Audit(tmp_path)
    audit.note("CREATE KEY one")
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, content: write(file, content[:40]))
        audit.note("DROP TABLE name=customers")
    audit.note("CREATE KEY two")
    assert [one["what"] for one in audit.entries()] == ["CREATE KEY one", "CREATE KEY two"]
    (line,) = [one.getMessage() for one in caplog.records]
    assert "cannot be written" in line
    assert "DROP TABLE name=customers" in line


def test_keys_and_policies_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_home(tmp_path, 0)
    home = ("--home", str(tmp_path))
    made = ("key", "create", "dash", "--read", "revenue*", "--read", "customers=public", "--expires", "90d", "--json")
    assert code_of(*made, *home) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["grants"] == ["read:revenue*", "read:customers=public"]
    assert read_keys(tmp_path).access_of(digest_of(told["key"])) is not None
    assert code_of("key", "list", "--json", *home) == 0
    listed = capsys.readouterr().out
    assert told["key"] not in listed
    assert json.loads(listed)[0]["state"] == "in force"
    assert code_of(*made, *home) == 1
    assert "there is a key dash" in capsys.readouterr().err
    assert code_of("policy", "set", "customers", "customers_public", "--anyway", *home) == 0
    assert code_of("policy", "list", "--json", *home) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == [
        {"relation": "customers", "view": "customers_public"}
    ]
    assert code_of("policy", "drop", "customers", *home) == 0
    assert code_of("policy", "drop", "customers", *home) == 1
    assert code_of("key", "revoke", told["id"], *home) == 0
    assert read_keys(tmp_path).access_of(digest_of(told["key"])) is None
    whats = [one["what"].split(" (")[0] for one in Audit(tmp_path).entries()]
    assert whats == [
        "CREATE KEY dash", "SET POLICY customers=customers_public", "DROP POLICY customers", "REVOKE KEY dash",
    ]  # fmt: skip
    for wrong in (("key", "create", "x"), ("key", "create", "x", "--read", "a;b"), ("key", "revoke", "nobody")):
        assert code_of(*wrong, *home) == 1


def test_settings_keys_may_do_everything() -> None:
    assert unlimited("x").is_unlimited


def test_a_stand_in_is_named_in_full(tmp_path: Path) -> None:
    with pytest.raises(SetupError):
        set_stand_in(tmp_path, "a*", "b")


def test_names_of_nothing_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = BareHome(tmp_path)
    home.create_table("ledger", StructType([StructField("id", LongType(), False)]), ("id",))
    home.create_table("gone", StructType([StructField("id", LongType(), False)]), ("id",))
    home.execute("DROP TABLE gone")
    home.close()
    options = ("--home", str(tmp_path))
    assert code_of("key", "create", "a", "--read", "*", "--read", "led*", "--write", "ledger", *options) == 0
    assert "warning" not in capsys.readouterr().err
    assert (
        code_of("key", "create", "b", "--read", "legder", "--read", "ledger=nosuchview", "--admin", "gone*", *options)
        == 0
    )
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert warned == [
        "warning: read:legder covers nothing for now: there is no relation legder",
        "warning: there is no view nosuchview: until there is, ledger cannot be read with this key",
        "warning: admin:gone* covers nothing for now: there is no relation gone*",
    ]
    assert code_of("policy", "set", "ledger", "nosuchview", *options) == 1
    refused = capsys.readouterr().err
    assert "there is no relation nosuchview" in refused
    assert "--anyway" in refused
    assert code_of("policy", "set", "legder", "ledger", *options) == 1
    assert read_keys(tmp_path).stand_ins == {}
    assert code_of("policy", "set", "ledger", "nosuchview", "--anyway", *options) == 0
    assert read_keys(tmp_path).stand_ins == {"ledger": "nosuchview"}


def test_an_event_type_is_noted_by_its_name(tmp_path: Path) -> None:
    sql = "CREATE EVENT TYPE 'Paid' VERSION 2 FOR EVENT STORE happened SCHEMA '{\"title\": \"secret\"}'"
    with noted(Audit(tmp_path), *parse(sql)):
        pass
    (entry,) = Audit(tmp_path).entries()
    assert entry["what"] == "CREATE EVENT TYPE event_type=Paid version=2 store=happened"
