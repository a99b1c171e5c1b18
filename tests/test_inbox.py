"""What is put is taken in order, and a wait ends."""

import threading
from queue import Empty

import pytest

from splitserve.inbox import Inbox


def test_what_was_put_is_taken_in_order() -> None:
    inbox: Inbox[int] = Inbox()
    for item in range(3):
        inbox.put(item)
    assert [inbox.get(), inbox.get(1.0), inbox.get_nowait()] == [0, 1, 2]
    with pytest.raises(Empty):
        inbox.get_nowait()
    with pytest.raises(Empty):
        inbox.get(0.0)


def test_who_waits_without_end_is_woken() -> None:
    inbox: Inbox[str] = Inbox()
    taken: list[str] = []
    thread = threading.Thread(target=lambda: taken.append(inbox.get()))
    thread.start()
    inbox.put("word")
    thread.join(10)
    assert taken == ["word"]


def test_a_wait_of_a_few_microseconds_ends_each_time() -> None:
    """SimpleQueue's does not."""
    inbox: Inbox[None] = Inbox()
    rounds = 20_000

    def wait() -> None:
        for _ in range(rounds):
            inbox.put(None)
            inbox.get_nowait()
            with pytest.raises(Empty):
                inbox.get(2e-6)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def test_nothing_is_lost_between_many_who_put_and_one_who_takes() -> None:
    inbox: Inbox[int] = Inbox()
    threads = [
        threading.Thread(target=lambda: [inbox.put(item) for item in range(5000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    taken = [inbox.get() for _ in range(4 * 5000)]
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(list(range(5000)) * 4)
