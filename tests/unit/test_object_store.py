"""What an object store adds to a home: answers that get lost, a store out of reach, two writers at one instant."""

from __future__ import annotations

import gc
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, LedgerError, OwnerLost, SetupError
from headrace.ledger.backup import backup, restore
from headrace.ledger.durable import is_whole, write_named
from headrace.ledger.inspection import inspect_storage
from headrace.ledger.ledger import Ledger
from headrace.offline import backup_home, inspect_home, restore_home
from headrace.owner.ownership import take_ownership
from headrace.storage import objects
from headrace.storage.objects import Bucket, Location, ObjectPath, local_file, location_of
from tests.object_store import ObjectStore
from tests.small_homes import (
    TABLE,
    add_epoch,
    base_folder,
    files_of,
    flip,
    fold,
    make_home,
    opened,
    rows_at,
    rows_of_base,
)


class Wire:
    """A line to the object store that can be cut, or that loses the answer to a request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ear = socket.create_server(("127.0.0.1", 0))
        self.port = self._ear.getsockname()[1]
        self.loses: Callable[[bytes], bool] = lambda request: False
        self.alters: Callable[[bytes], bytes] = lambda request: request
        self.is_cut = False
        self.lost = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                near, _ = self._ear.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        """One request after another; the store answers each before the next is sent."""
        with near, socket.create_connection(("127.0.0.1", self._port)) as far:
            while not self.is_cut and (request := _message(near)):
                far.sendall(self.alters(request))
                answer = _message(far, bodiless=request.startswith(b"HEAD"))
                if self.is_cut:
                    return
                if self.loses(request):
                    self.lost += 1
                    return
                near.sendall(answer)

    def close(self) -> None:
        self._ear.close()


def _message(line: socket.socket, bodiless: bool = False) -> bytes:
    """One whole request or answer; empty when the other side has gone."""
    content = b""
    while b"\r\n\r\n" not in content:
        part = line.recv(65536)
        if not part:
            return b""
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    fields = dict(field.lower().split(b": ", 1) for field in head.split(b"\r\n")[1:])
    while b"transfer-encoding" in fields and not bodiless and not body.endswith(b"0\r\n\r\n"):
        body += line.recv(65536)
    while not bodiless and len(body) < int(fields.get(b"content-length", 0)):
        body += line.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def wire(object_store: ObjectStore) -> Iterator[Wire]:
    line = Wire(int(object_store.endpoint.rpartition(":")[2]))
    yield line
    line.is_cut = True
    line.close()


@pytest.fixture
def far(object_store: ObjectStore, wire: Wire, tmp_path: Path) -> ObjectPath:
    """A home that is reached over the wire."""
    options = {**object_store.options, "aws_endpoint_url": f"http://127.0.0.1:{wire.port}"}
    return ObjectPath(Bucket(object_store.uri(tmp_path.name), options))


def test_a_commit_whose_answer_was_lost_is_found_again(far: ObjectPath, wire: Wire) -> None:
    ledger = make_home(far, 2)
    wire.loses = lambda request: request.startswith(b"PUT") and b"_delta_log" in request and wire.lost == 0
    add_epoch(ledger, 3)
    assert wire.lost == 1
    add_epoch(ledger, 4)
    assert opened(far).epoch == 4
    assert len(rows_at(far, 4)) == 4


def test_a_commit_that_nobody_answered_is_open_until_the_home_is_opened_again(far: ObjectPath, wire: Wire) -> None:
    ledger = make_home(far, 2)

    # The store makes the commit, and is not heard of again.
    def cut(request: bytes) -> bool:
        wire.is_cut = wire.is_cut or (request.startswith(b"PUT") and b"_delta_log" in request)
        return wire.is_cut

    wire.loses = cut
    with pytest.raises(LedgerError, match="not confirmed"):
        add_epoch(ledger, 3)
    wire.is_cut, wire.loses = False, lambda request: False
    with pytest.raises(LedgerError, match="not confirmed"):
        add_epoch(ledger, 3)
    again = opened(far)
    again.claim(2)
    assert again.epoch == 3
    add_epoch(again, 4)
    assert inspect_storage(far).ok
    assert len(rows_at(far, 4)) == 4


def test_a_store_out_of_reach_takes_the_epoch_later(far: ObjectPath, wire: Wire) -> None:
    ledger = make_home(far, 2)
    wire.is_cut = True
    with pytest.raises(LedgerError, match="cannot be written"):
        add_epoch(ledger, 3)
    wire.is_cut = False
    add_epoch(ledger, 3)
    assert opened(far).epoch == 3
    assert inspect_storage(far).ok


def test_of_two_simultaneous_writers_one_commits(location: Location) -> None:
    rounds = 8
    make_home(location, 1)
    for turn in range(rounds):
        writers = [opened(location) for _ in range(4)]
        start = threading.Barrier(len(writers))
        outcomes: list[str] = []

        def write(ledger: Ledger, start: threading.Barrier, outcomes: list[str], epoch: int = turn + 2) -> None:
            start.wait()
            try:
                add_epoch(ledger, epoch)
                outcomes.append("committed")
            except OwnerLost:
                outcomes.append("lost")

        threads = [threading.Thread(target=write, args=(one, start, outcomes)) for one in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["committed", "lost", "lost", "lost"]
    assert [epoch for epoch, _ in rows_at(location, rounds + 1)] == list(range(1, rounds + 2))


@pytest.fixture
def in_store(object_store: ObjectStore, tmp_path: Path) -> ObjectPath:
    """Six epochs in an object store, the first four of them folded, every delta in an object of its own."""
    location = object_store.location(f"{tmp_path.name}/home")
    fold(location, make_home(location, 6, inline_bytes=0), 4)
    return location


def test_a_backup_goes_from_a_store_to_a_disk_and_back(
    in_store: ObjectPath, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in object_store.options.items():
        monkeypatch.setenv(name.upper().replace("ALLOW_HTTP", "AWS_ALLOW_HTTP"), value)
    assert backup_home(str(in_store), tmp_path / "copy")["epoch"] == 6
    again = object_store.uri(f"{tmp_path.name}/again")
    assert restore_home(tmp_path / "copy", again)["epoch"] == 6
    assert inspect_home(again).ok
    restored = location_of(again, {})
    for epoch in range(7):
        assert rows_at(restored, epoch) == rows_at(in_store, epoch)
    assert rows_of_base(restored) == rows_of_base(in_store)
    with pytest.raises(LedgerError, match="is not empty"):
        restore_home(tmp_path / "copy", again)
    with pytest.raises(LedgerError, match="inside the home"):
        backup_home(again, f"{again}/copy")
    with pytest.raises(SetupError, match="there is no home"):
        backup_home(object_store.uri("nowhere"), tmp_path / "other")


def test_a_damaged_object_is_found_and_not_copied(
    in_store: ObjectPath, object_store: ObjectStore, tmp_path: Path
) -> None:
    (file,) = in_store.glob(f"deltas/{5:012d}-t-*")
    flip(file)
    found = inspect_storage(in_store)
    assert [one.path for one in found.damaged] == [f"deltas/{file.name}"]
    assert found.whole_epoch == 4
    destination = object_store.location(f"{tmp_path.name}/copy")
    with pytest.raises(LedgerError, match=file.name):
        backup(in_store, destination)
    assert not destination.exists()


def test_an_unfinished_restore_leaves_nothing(in_store: ObjectPath, object_store: ObjectStore, tmp_path: Path) -> None:
    backup(in_store, tmp_path / "copy")
    again = object_store.location(f"{tmp_path.name}/again")

    def fail(done: int, total: int) -> None:
        if done > total * 3 // 4:
            raise OSError("no more")

    with pytest.raises(LedgerError, match="cannot be restored"):
        restore(tmp_path / "copy", again, fail)
    assert not again.exists()


def test_what_was_fetched_is_fetched_once_and_goes_with_its_bucket(object_store: ObjectStore, tmp_path: Path) -> None:
    location = object_store.location(tmp_path.name)
    (location / "file").write_bytes(b"content")
    with local_file(location / "file") as fetched:
        assert fetched.read_bytes() == b"content"
    (location / "file").unlink()
    with local_file(location / "file") as again:
        assert again == fetched
    del location
    gc.collect()
    assert not fetched.exists()


def test_what_is_being_read_does_not_make_room(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_CACHE_BYTES", 1500)
    location = object_store.location(tmp_path.name)
    for name in ("a", "b", "c"):
        (location / name).write_bytes(name.encode() * 1000)
    with local_file(location / "a") as first:
        with local_file(location / "b") as second:
            assert first.exists()
        with local_file(location / "c") as third:
            assert (first.exists(), second.exists(), third.exists()) == (True, False, True)
    with local_file(location / "b") as second:
        assert second.read_bytes() == b"b" * 1000
        assert not first.exists()


def test_a_large_object_is_sent_in_parts_and_comes_back(object_store: ObjectStore, tmp_path: Path) -> None:
    location = object_store.location(tmp_path.name)
    content = random.Random(1).randbytes(20 * 1024 * 1024 + 1)
    name, size = write_named(location, "large-", lambda sink: sink.write(content))
    assert (location / name).stat().st_size == size == len(content)
    assert is_whole(location / name)
    with local_file(location / name) as file:
        assert file.read_bytes() == content


@pytest.mark.parametrize("home", ["ftp://somewhere/home", "s3://", "memory://home", "az://container/home"])
def test_an_unknown_place_is_refused(home: str) -> None:
    with pytest.raises(SetupError, match="not a place"):
        location_of(home, {})


def test_wrong_credentials_and_a_missing_bucket_are_told(object_store: ObjectStore) -> None:
    stranger = {**object_store.options, "aws_secret_access_key": "guessed"}
    with pytest.raises(HeadraceError, match="cannot be") as refused:
        opened(ObjectPath(Bucket(object_store.uri("home"), stranger)))
    assert "guessed" not in str(refused.value)
    with pytest.raises(HeadraceError, match="cannot be"):
        make_home(ObjectPath(Bucket("s3://nowhere/home", object_store.options)), 1)


@pytest.mark.java
def test_a_store_that_gives_a_name_twice_is_refused() -> None:
    with ObjectStore(authorization="none") as store:
        wire = Wire(int(store.endpoint.rpartition(":")[2]))
        options = {**store.options, "aws_endpoint_url": f"http://127.0.0.1:{wire.port}"}
        home = ObjectPath(Bucket(store.uri("home"), options))
        take_ownership(home, timedelta(seconds=30)).release()
        wire.alters = lambda request: re.sub(rb"(?i)if-none-match: \*\r\n", b"", request)
        with pytest.raises(SetupError, match="cannot hold a home"):
            take_ownership(home, timedelta(seconds=30))
        wire.close()


def test_a_folder_and_a_file_uri_are_folders(tmp_path: Path) -> None:
    assert location_of(str(tmp_path), {}) == location_of(f"file://{tmp_path}", {}) == tmp_path


def test_nothing_of_a_home_lies_beside_its_prefix(object_store: ObjectStore, tmp_path: Path) -> None:
    first, other = object_store.location(f"{tmp_path.name}/a"), object_store.location(f"{tmp_path.name}/ab")
    make_home(first, 2)
    assert not other.exists()
    make_home(other, 1)
    assert len(list((other / "ledger").glob("*.parquet"))) == 1
    before = files_of(other)
    first.remove_all()
    assert not first.exists()
    assert files_of(other) == before
    assert not base_folder(other, TABLE).exists()
