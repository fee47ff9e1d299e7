"""Who looks after a workload, as the daemon finds it again."""

from __future__ import annotations

import asyncio
import threading

from nls_scheduler.core.model.ids import ProcessId, WorkloadId
from nls_scheduler.daemon.peers import Leases


def test_a_holder_whose_pid_is_a_threads_by_now_has_ended() -> None:
    async def retaken() -> bool:
        return Leases(lambda _: None).retake(WorkloadId("w1"), ProcessId(threading.get_native_id(), 1))

    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(retaken())))
    thread.start()
    thread.join()
    assert found == [False]
