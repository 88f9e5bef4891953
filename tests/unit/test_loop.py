"""The loop: calls in the order of their arrival, an epoch for those who wait together, a verdict for each."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from headrace.epoch.calls import Basis, Call, Outdated
from headrace.epoch.loop import Loop
from headrace.errors import ChangesRejected, HomeBroken, KeyReused, LedgerNotWritten, ViewEvaluationError
from tests.small_engine import Following, Host, picky, table, verdicts, view
from tests.waiting import until


def insert(number: int, n: int | None = 0, **parts: Any) -> Call:
    return Call({"t": [{"insert": {"id": number, "n": n}}]}, **parts)


def delete(number: int) -> Call:
    return Call({"t": [{"delete": {"id": number}}]})


@pytest.fixture
def host() -> Host:
    return Host(table("t"), view("v", "t", rule=Following(picky)))


@pytest.fixture
def loop(host: Host) -> Loop:
    return Loop(host)


def test_calls_that_wait_together_share_an_epoch_in_their_order(host: Host, loop: Loop) -> None:
    first, second, third = insert(1, 10), delete(1), insert(1, 11)
    receipts = verdicts(loop, first, second, third)
    assert [one.epoch for one in receipts] == [1, 1, 1]
    assert [dict(one.applied) for one in receipts] == [{"t": 1}] * 3
    assert host.holds("t") == host.holds("v") == {(1, 11)}
    assert len(host.heads) == 1


def test_a_call_alone_has_an_epoch_of_its_own(host: Host, loop: Loop) -> None:
    assert loop.submit(insert(1)).epoch == 1
    receipt = loop.submit(insert(2))
    assert receipt.epoch == 2
    assert set(receipt.stages) == {"intake", "views", "ledger"}
    assert loop.idle.is_set()


def test_the_last_in_line_runs_the_epoch_for_all_before_it(host: Host, loop: Loop) -> None:
    first, last = loop.enter(insert(1)), loop.enter(insert(2))
    loop.wait_for(last)
    assert first.done
    assert first.receipt is not None


def test_a_rejected_call_leaves_no_trace_and_others_go_on(host: Host, loop: Loop) -> None:
    bad = Call({"t": [{"insert": {"id": 5, "n": 1}}, {"insert": {"id": None, "n": 1}}]})
    one, rejected, two = verdicts(loop, insert(1), bad, insert(2))
    assert isinstance(rejected, ChangesRejected)
    assert (one.epoch, two.epoch) == (1, 1)
    assert host.holds("t") == {(1, 0), (2, 0)}


def test_when_all_are_rejected_there_is_no_epoch(host: Host, loop: Loop) -> None:
    (rejected,) = verdicts(loop, Call({"nothing": []}))
    assert isinstance(rejected, Exception)
    assert host.epoch == 0


def test_twins_in_one_epoch_are_applied_once(host: Host, loop: Loop) -> None:
    first, twin = verdicts(loop, insert(1, key="k"), insert(1, key="k"))
    assert first == twin
    assert list(host.heads[0]["keys"]) == ["k"]
    assert dict(first.applied) == {"t": 1}


def test_twins_that_change_nothing_hear_the_same(host: Host, loop: Loop) -> None:
    empty = [Call({"t": []}, key="k", digest=digest, quiet=True) for digest in ("one", "one", "other")]
    first, twin, other = verdicts(loop, *empty)
    assert first == twin
    assert isinstance(other, KeyReused)


def test_the_key_of_a_call_that_changes_nothing_is_kept_too(host: Host, loop: Loop) -> None:
    first = loop.submit(Call({"t": []}, key="k", digest="none", quiet=True))
    assert list(host.heads[0]["digests"].items()) == [("k", "none")]
    with pytest.raises(KeyReused):
        loop.submit(insert(1, key="k", digest="one"))
    assert loop.submit(Call({"t": []}, key="k", digest="none", quiet=True)) == first
    assert (host.holds("t"), host.epoch) == (set(), 1)


def test_a_known_key_gets_its_first_receipt_and_changes_nothing(host: Host, loop: Loop) -> None:
    first = loop.submit(insert(1, key="k"))
    loop.submit(insert(1, n=5))
    assert loop.submit(insert(1, key="k")) == first
    assert host.holds("t") == {(1, 5)}
    assert host.epoch == 2


@pytest.mark.parametrize("together", [True, False])
def test_a_key_stands_for_one_content(host: Host, loop: Loop, together: bool) -> None:
    first, other = insert(1, key="k", digest="a"), insert(2, key="k", digest="b")
    found = verdicts(loop, first, other) if together else [*verdicts(loop, first), *verdicts(loop, other)]
    assert found[0].epoch == 1
    assert isinstance(found[1], KeyReused)
    assert host.holds("t") == {(1, 0)}


def test_a_key_of_a_rejected_call_may_be_used_again(host: Host, loop: Loop) -> None:
    bad = Call({"t": [{"insert": {"id": None}}]}, key="k")
    rejected, taken = verdicts(loop, bad, insert(1, key="k"))
    assert isinstance(rejected, ChangesRejected)
    assert taken.epoch == 1


def read_at(host: Host, name: str) -> Call:
    """A statement that copies how many rows a relation has at the newest epoch."""
    changes = {"t": [{"insert": {"id": 100, "n": len(host.holds(name))}}]}
    return Call(changes, basis=Basis(host.epoch, 0, frozenset({name})))


@pytest.mark.parametrize("name", ["t", "v"])
def test_a_statement_is_outdated_by_the_calls_before_it(host: Host, loop: Loop, name: str) -> None:
    receipts = verdicts(loop, insert(1), read_at(host, name), insert(2))
    assert [receipts[0].epoch, receipts[2].epoch] == [1, 1]
    assert isinstance(receipts[1], Outdated)
    assert host.holds("t") == {(1, 0), (2, 0)}


def test_a_statement_counts_as_long_as_nobody_changed_what_it_read(host: Host, loop: Loop) -> None:
    receipts = verdicts(loop, read_at(host, "v"), insert(1))
    assert [one.epoch for one in receipts] == [1, 1]
    assert isinstance(verdicts(loop, Call({}, basis=Basis(0, 0, frozenset({"v"}))))[0], Outdated)
    assert verdicts(loop, read_at(host, "v"))[0].epoch == 2


def test_a_statement_that_is_worked_out_again_sees_what_came_before(host: Host, loop: Loop) -> None:
    def work_out() -> Call:
        call = read_at(host, "t")
        if host.epoch == 0:
            loop.submit(insert(1))
        return call

    assert loop.submit_worked_out(work_out).epoch == 2
    assert host.holds("t") == {(1, 0), (100, 1)}


def test_only_the_guilty_call_is_rejected(host: Host, loop: Loop) -> None:
    before, guilty, after = verdicts(loop, insert(1), insert(2, 666), insert(3))
    assert isinstance(guilty, ViewEvaluationError)
    assert (before.epoch, after.epoch) == (1, 2)
    assert host.holds("v") == {(1, 0), (3, 0)}
    assert len(host.blamed) == 1


def test_what_only_the_guilty_made_wrong_is_right_without_it(host: Host, loop: Loop) -> None:
    """A call that was rejected on top of the guilty one is tried again where that one is not."""
    loop.submit(insert(1))

    guilty, dependent = verdicts(loop, insert(1, 666), read_at(host, "t"))
    assert isinstance(guilty, ViewEvaluationError)
    assert dependent.epoch == 2
    assert host.holds("t") == {(1, 0), (100, 1)}


def test_an_error_of_the_commit_is_told_to_all_and_the_loop_goes_on(host: Host, loop: Loop) -> None:
    def full() -> None:
        raise OSError(28, "no space left on device")

    host.before_commit = full
    found = verdicts(loop, insert(1), insert(2))
    assert [type(one) for one in found] == [OSError, OSError]
    host.before_commit = lambda: None
    assert loop.submit(insert(1)).epoch == 1
    assert host.holds("t") == {(1, 0)}


def test_an_interrupt_reaches_who_runs_the_epoch_and_settles_all(host: Host, loop: Loop) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    host.before_commit = interrupted
    first, second = loop.enter(insert(1)), loop.enter(insert(2))
    with pytest.raises(KeyboardInterrupt):
        loop.wait_for(second)
    assert first.done
    assert first.receipt is None
    # The interrupt was meant for one thread; the other hears that nothing was committed.
    with pytest.raises(LedgerNotWritten, match="interrupted") as told:
        loop.wait_for(first)
    assert told.value.transient
    assert loop.idle.is_set()
    host.before_commit = lambda: None
    assert loop.submit(insert(3)).epoch == 1


@pytest.mark.parametrize("pauses", [True, False])
def test_the_garbage_collector_rests_during_an_epoch_only_if_told(host: Host, loop: Loop, pauses: bool) -> None:
    loop.pauses_collector = pauses
    enabled: list[bool] = []

    def interrupted() -> None:
        enabled.append(gc.isenabled())
        raise KeyboardInterrupt

    host.before_commit = interrupted
    with pytest.raises(KeyboardInterrupt):
        loop.submit(insert(1))
    assert enabled == [not pauses]
    assert gc.isenabled()


@pytest.mark.parametrize("raised", [KeyboardInterrupt, RuntimeError])
def test_of_a_broken_home_each_call_hears_whether_it_is_in(
    host: Host, loop: Loop, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    def broken(*_: object) -> None:
        """The epoch is committed, and what follows fails."""
        error = raised()
        host.broken = HomeBroken(1, error)
        raise HomeBroken(1, error, included=True) if isinstance(error, Exception) else error

    monkeypatch.setattr(host, "commit", broken)
    bad = Call({"t": [{"insert": {"id": None}}]})
    calls = [loop.enter(call) for call in (insert(1), bad, insert(2))]
    with pytest.raises((HomeBroken, KeyboardInterrupt)):
        loop.wait_for(calls[0])
    assert isinstance(calls[0].error, HomeBroken)
    assert calls[0].error.included
    assert isinstance(calls[1].error, ChangesRejected)
    assert calls[2].error is calls[0].error
    with pytest.raises(HomeBroken) as later:
        loop.submit(insert(3))
    assert (later.value.epoch, later.value.included) == (1, False)


def test_an_interrupt_in_a_broken_home_says_that_nothing_was_done(host: Host, loop: Loop) -> None:
    host.broken = HomeBroken(1, RuntimeError())
    host.before_commit = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
    (told,) = verdicts(loop, insert(1))
    assert (told.epoch, told.included) == (1, False)


def test_what_fails_after_the_commit_takes_no_receipt_away(
    host: Host, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(host, "remember", refuse)
    found = verdicts(loop, insert(1, key="k"), insert(2), insert(2, key="k"))
    assert [getattr(one, "epoch", one) for one in found] == [1, 1, 1]
    assert len(host.holds("t")) == 2


def test_who_was_not_tried_alone_is_not_called_guilty(host: Host, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the guilty call is looked for: the others hear that they may be sent again."""
    follow, followed = host.follow, iter([False, True])

    def interrupted(work: Any) -> None:
        if next(followed, False):
            raise KeyboardInterrupt
        follow(work)

    monkeypatch.setattr(host, "follow", interrupted)
    first, guilty, last = (loop.enter(call) for call in (insert(1), insert(2, 666), insert(3)))
    with pytest.raises(KeyboardInterrupt):
        loop.wait_for(first)
    for call in (guilty, last):
        with pytest.raises(LedgerNotWritten, match="interrupted"):
            loop.wait_for(call)
    assert host.epoch == 0


def test_a_guilty_row_that_is_not_found_changes_no_verdict(
    host: Host, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise ConnectionResetError("while the row is looked for")

    monkeypatch.setattr(host, "blame", refuse)
    guilty, innocent = verdicts(loop, insert(1, 666), insert(2))
    assert isinstance(guilty, ViewEvaluationError)
    assert innocent.epoch == 1


def test_quiet_calls_that_move_nothing_make_no_epoch(host: Host, loop: Loop) -> None:
    quiet = Call({}, quiet=True)
    assert loop.submit(quiet).epoch == 0
    assert host.heads == []
    loud = Call({})
    assert loop.submit(loud).epoch == host.epoch


def test_who_comes_while_an_epoch_runs_shares_the_next(host: Host, loop: Loop) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        assert go_on.wait(90)

    host.before_commit = slow
    calls = [insert(number) for number in range(6)]
    threads = [threading.Thread(target=loop.submit, args=(calls[0],))]
    threads[0].start()
    assert started.wait(90)
    threads += [threading.Thread(target=loop.submit, args=(call,)) for call in calls[1:]]
    for thread in threads[1:]:
        thread.start()
    until(lambda: len(loop._waiting) == 5)  # pyright: ignore[reportPrivateUsage]
    go_on.set()
    for thread in threads:
        thread.join(90)
    assert [call.receipt.epoch for call in calls if call.receipt] == [1, 2, 2, 2, 2, 2]
    assert len(host.holds("v")) == 6


def test_what_a_source_keeps_of_its_changes_is_part_of_their_epoch() -> None:
    host: Any = Host(table("t"), table("kept"))
    seen: list[Any] = []

    def after(verdicts: Any) -> Any:
        seen.append(verdicts)
        return {"kept": [{"insert": {"id": len(verdicts.rejections), "n": verdicts.applied["t"]}}]}

    changes = {"t": [{"insert": {"id": 1, "n": 0}}, {"insert": {"id": "no"}}]}
    receipt = Loop(host).submit(Call(changes, after=after))
    assert (receipt.applied, receipt.dead) == ({"t": 1}, {"t": 1})
    assert host.epoch == 1
    assert (host.holds("t"), host.holds("kept")) == ({(1, 0)}, {(1, 1)})
    assert seen[0].rejections[0].reason.startswith("column id")


def test_a_source_that_cannot_keep_its_changes_changes_nothing() -> None:
    host: Any = Host(table("t"), table("kept"))
    loop = Loop(host)
    first = loop.enter(
        Call({"t": [{"insert": {"id": 1, "n": 0}}]}, after=lambda _: {"kept": [{"insert": {"id": "no"}}]})
    )
    loop.submit(Call({"t": [{"insert": {"id": 2, "n": 0}}]}))
    with pytest.raises(ChangesRejected):
        loop.wait_for(first)
    assert host.holds("t") == {(2, 0)}
