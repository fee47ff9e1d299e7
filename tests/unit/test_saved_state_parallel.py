"""Several threads share a piece of work, the calling one among them."""

import threading
from collections import Counter, deque

import pytest

from nls_jupyter.saved_state import parallel

PARTS = list(range(40))


@pytest.fixture(params=[1, 2, 4], autouse=True)
def threads(request, monkeypatch):
    monkeypatch.setattr(parallel.os, "sched_getaffinity", lambda _: set(range(request.param)))
    monkeypatch.delenv(parallel.SWITCH, raising=False)
    return request.param


def test_each_part_is_done_once_and_in_as_many_threads_as_there_are_processors(threads):
    done, meeting, by = Counter(), threading.Barrier(threads, timeout=30), set()

    def work(part):
        done[part] += 1
        if threading.get_ident() not in by:
            by.add(threading.get_ident())
            meeting.wait()

    parallel.for_each(PARTS, work, lambda: None)
    assert done == Counter(PARTS)
    assert len(by) == threads
    assert threading.get_ident() in by


def test_progress_is_told_in_the_calling_thread(threads):
    told = []
    parallel.for_each(PARTS, lambda _: None, lambda: told.append(threading.get_ident()))
    assert set(told) <= {threading.get_ident()}
    assert threads > 1 or len(told) == len(PARTS)


@pytest.mark.parametrize("in_the_calling_thread", [True, False])
def test_a_part_that_fails_keeps_the_others_from_beginning(threads, in_the_calling_thread, monkeypatch):
    """Those that have begun are waited for: nobody writes any more once the failure is told."""
    if threads == 1 and not in_the_calling_thread:
        pytest.skip("there is no other")
    cleared, at_once = threading.Event(), threading.Barrier(threads, timeout=30)
    me, begun, ended = threading.get_ident(), Counter(), Counter()

    class Left(deque):
        def clear(self):
            super().clear()
            cleared.set()

    def work(part):
        begun[part] += 1
        at_once.wait()
        if (threading.get_ident() == me) == in_the_calling_thread:
            raise ValueError(part)
        assert cleared.wait(30)
        ended[part] += 1

    monkeypatch.setattr(parallel, "deque", Left)
    with pytest.raises(ValueError, match=r"^[0-3]$"):
        parallel.for_each(PARTS, work, lambda: None)
    assert sum(begun.values()) == threads
    assert sum(ended.values()) == (threads - 1 if in_the_calling_thread else 1)


def test_what_progress_raises_ends_it(threads):
    class Stopped(BaseException):
        pass

    begun, at_once = Counter(), threading.Barrier(threads, timeout=30)

    def work(part):
        begun[part] += 1
        if part < threads:
            at_once.wait()  # one each

    def stop():
        raise Stopped

    with pytest.raises(Stopped):
        parallel.for_each(PARTS, work, stop)
    assert threads > 1 or begun == Counter(PARTS[:1])


@pytest.mark.parametrize("wanted", ["many", "0", "-1", "2.0", "²"])
def test_what_is_no_number_of_threads_is_named(threads, wanted, monkeypatch):
    monkeypatch.setenv(parallel.SWITCH, wanted)
    with pytest.raises(ValueError, match=f"NLS_SAVE_THREADS is {wanted!r}, and not a whole number"):
        parallel.for_each(PARTS, lambda _: None, lambda: None)
    monkeypatch.setenv(parallel.SWITCH, "")
    assert parallel.wanted_threads() is None
