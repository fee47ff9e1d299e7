"""Who looks after a workload, as the daemon finds it again."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import threading
from dataclasses import replace

import pytest

from nls_scheduler.core.model.ids import ProcessId, WorkloadId
from nls_scheduler.daemon.peers import Leases, Peer


def test_a_holder_whose_pid_is_a_threads_by_now_has_ended() -> None:
    async def retaken() -> bool:
        return Leases(lambda _: None).retake(WorkloadId("w1"), ProcessId(threading.get_native_id(), 1))

    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(retaken())))
    thread.start()
    thread.join()
    assert found == [False]


def test_a_lease_that_cannot_be_taken_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no descriptor left for the next holder, nobody would have heard of the end of the last one."""

    async def story(holder: subprocess.Popen[bytes]) -> WorkloadId:
        ended = asyncio.get_running_loop().create_future()
        leases = Leases(ended.set_result)
        process = ProcessId(holder.pid, 1)
        peer = Peer(os.getuid(), process, os.pidfd_open(holder.pid), administrator=False)
        leases.take(WorkloadId("w1"), peer)
        with monkeypatch.context() as patched:
            patched.setattr(os, "dup", no_more)
            with pytest.raises(OSError, match="Too many open files"):
                leases.take(WorkloadId("w1"), replace(peer, process=ProcessId(1, 1)))
        peer.close()
        assert leases.holder(WorkloadId("w1")) == process
        holder.kill()
        return await asyncio.wait_for(ended, 30)

    def no_more(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with subprocess.Popen(["sleep", "600"]) as holder:
        try:
            assert asyncio.run(story(holder)) == "w1"
        finally:
            holder.kill()
