"""The lane between the kernel and its GPU process: whole messages, whatever their size, and nothing after the end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from nls_jupyter.between.lane import Lane

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = bytes(range(256)) * 20_000


@pytest.fixture
def ends() -> Iterator[tuple[Lane, Lane]]:
    own, inherited = Lane.pair()
    other = Lane(inherited)
    yield own, other
    own.close()
    other.close()


def test_messages_arrive_whole_and_in_order(ends: tuple[Lane, Lane]) -> None:
    one, other = ends
    messages = [[b"a", b"", b"bc"], [b""], [memoryview(b"xyz")]]
    assert all(one.send(message) for message in messages)
    assert list(other.arrived()) == [[b"a", b"", b"bc"], [b""], [b"xyz"]]
    assert list(other.arrived()) == []


def test_both_ends_speak(ends: tuple[Lane, Lane]) -> None:
    one, other = ends
    assert one.send([b"asked"])
    assert other.send([b"answered"])
    assert (list(one.arrived()), list(other.arrived())) == ([[b"answered"]], [[b"asked"]])


def test_a_message_larger_than_the_socket_arrives_when_it_is_read(ends: tuple[Lane, Lane]) -> None:
    one, other = ends
    assert not one.send([b"first", LARGE])
    assert not one.send([b"second"])
    arrived: list[list[bytes]] = []
    while not one.send_rest():
        arrived += other.arrived()
    arrived += other.arrived()
    assert arrived == [[b"first", LARGE], [b"second"]]


def test_part_of_a_message_is_none_yet(ends: tuple[Lane, Lane]) -> None:
    one, other = ends
    one.send([LARGE])
    assert list(other.arrived()) == []


def test_what_was_sent_before_the_end_arrives_before_the_end_is_told(ends: tuple[Lane, Lane]) -> None:
    one, other = ends
    one.send([b"last"])
    one.close()
    assert list(other.arrived()) == [[b"last"]]
    with pytest.raises(ConnectionResetError):
        list(other.arrived())
    with pytest.raises(ConnectionError):
        other.send([b"to nobody"])


def test_a_sender_that_is_faster_than_the_reader_loses_nothing(ends: tuple[Lane, Lane]) -> None:
    one, other = ends
    numbers = [b"%d" % number for number in range(2000)]

    def send() -> None:
        for number in numbers:
            one.send([number, b"x" * 500])
        while not one.send_rest():
            pass

    sender = threading.Thread(target=send)
    sender.start()
    arrived: list[bytes] = []
    while len(arrived) < len(numbers):
        arrived += [number for number, _ in other.arrived()]
    sender.join()
    assert arrived == numbers
