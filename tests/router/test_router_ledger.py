from splitserve.ids import RequestId, WorkerId
from splitserve.router import ledger
from splitserve.router.ledger import Ledger

W, V = WorkerId("w"), WorkerId("v")


def rid(n: int) -> RequestId:
    return RequestId(f"r{n}")


def test_prompt_tokens_move_from_pending_to_recent_to_the_workers_own_report() -> None:
    book: Ledger[str] = Ledger()
    book.open(W, rid(1), "a", 100)
    book.open(W, rid(2), "b", 10)
    assert (book.pending_tokens(W), book.recent_tokens(W)) == (110, 0)
    book.settle(W, rid(1))
    book.settle(W, rid(1))
    assert (book.pending_tokens(W), book.recent_tokens(W)) == (10, 100)
    book.reported(W)
    assert (book.pending_tokens(W), book.recent_tokens(W)) == (10, 0)
    book.close(W, rid(2))
    book.close(W, rid(1))
    assert book.pending_tokens(W) == 0
    assert book.empty


def test_a_lost_worker_leaves_entries_to_move_on_and_orphans_to_abort() -> None:
    book: Ledger[str] = Ledger()
    book.open(W, rid(1), "a", 5)
    book.open(V, rid(1), "b", 5)
    assert book.lose(W) == ["a"]
    assert dict(book.at(W)) == {}
    assert dict(book.at(V)) == {rid(1): "b"}
    assert book.pending_tokens(W) == 0
    assert book.take_orphans(W) == [rid(1)]
    assert book.take_orphans(W) == []


def test_orphans_of_a_worker_that_never_returns_are_bounded() -> None:
    book: Ledger[int] = Ledger()
    for n in range(ledger.MAX_ORPHANS + 10):
        book.open(W, rid(n), n, 1)
        book.lose(W)
    orphans = book.take_orphans(W)
    assert len(orphans) == ledger.MAX_ORPHANS
    assert orphans[0] == rid(10)


def test_an_unknown_worker_has_nothing_open() -> None:
    book: Ledger[int] = Ledger()
    assert len(book.at(W)) == 0
    book.close(W, rid(1))
    assert book.empty


def test_promised_tokens_count_until_the_worker_is_told_or_the_promise_ends() -> None:
    book: Ledger[str] = Ledger()
    book.promise(W, rid(1), 100)
    book.promise(W, rid(2), 10)
    assert (book.pending_tokens(W), book.unsettled(W)) == (110, 2)
    assert book.empty
    book.open(W, rid(1), "a", 100)
    assert (book.pending_tokens(W), book.unsettled(W)) == (110, 2)
    book.close(W, rid(2))
    assert book.settle(W, rid(1)) == 100
    assert book.settle(W, rid(1)) == 0
    assert (book.pending_tokens(W), book.unsettled(W)) == (0, 0)


def test_what_was_open_at_a_report_is_known_until_the_worker_is_lost() -> None:
    book: Ledger[str] = Ledger()
    book.open(W, rid(1), "a", 1)
    book.reported(W)
    book.open(W, rid(2), "b", 1)
    assert book.open_at_report(W) == 1
    book.lose(W)
    assert book.open_at_report(W) == 0
