"""The lane between the kernel and its GPU process: whole messages, whatever their size, and nothing after the end."""

from __future__ import annotations

import fcntl
import resource
import select
import socket
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from nls_jupyter.between.lane import Lane
from nls_jupyter.gpu_process.lane_end import LaneEnd

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


def test_an_end_with_a_high_number_is_read_and_written(ends: tuple[Lane, Lane]) -> None:
    """As a GPU process gets it of a kernel that has opened more files than `select` knows."""
    one, other = ends
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    try:
        high = socket.socket(fileno=fcntl.fcntl(other.fileno(), fcntl.F_DUPFD_CLOEXEC, 1100))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with closing(Lane(high)) as lane:
        end = LaneEnd(lane, None)
        assert not end.waits
        assert one.send([b"asked"])
        assert end.waits
        sending = threading.Thread(target=end.send, args=([LARGE],))
        sending.start()
        answer: list[list[bytes]] = []
        while not answer and one.wait_for(select.POLLIN, 10.0):
            answer = list(one.arrived())
        sending.join(10)
        assert answer == [[LARGE]]


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
