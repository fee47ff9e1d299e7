"""Real notebooks share one simulated GPU: what they may use, and what they hear when it is short."""

from __future__ import annotations

import pytest

from notebooks import Bench
from waiting import wait_until

pytestmark = pytest.mark.kernel

MIB = 1 << 20


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """One GPU of 256 MiB, of which a CUDA context takes 16. Nobody is moved because this machine is slow to trim."""
    patient = ("--set", "trim_timeout_s=60", "--set", "reclaim_deadline_s=600")
    with Bench(tmp_path_factory.mktemp("bench"), "1x256MiB", *patient, NLS_SIMULATED_CACHE="1") as bench:
        yield bench


@pytest.fixture(scope="module")
def opened(bench):
    """Two notebooks for all stories: starting kernels takes longest."""
    return bench.open(), bench.open()


@pytest.fixture
def books(opened):
    """alice and bob, each guaranteed a quarter and allowed the half that is left to each, with nothing in memory."""
    for book in opened:
        book.run("%gpu request 0.25 --limit 1.0")
        book.gpu("from nls_jupyter import xp\nx = xp.zeros(1)\nx = y = z = None")
        book.run("%gpu trim")
    for book in opened:
        assert book.entry(allowance_bytes=128 * MIB, memory_used_bytes=16 * MIB)
    return opened


def test_an_allocation_beyond_the_share_says_in_mid_cell_who_holds_what_and_what_helps(books):
    alice, bob = books
    alice.gpu(f"x = xp.zeros({60 * MIB}, xp.uint8)")
    alice.entry(memory_used_bytes=76 * MIB)
    failure = bob.fails(f"%%gpu\ny = xp.zeros({50 * MIB}, xp.uint8)\nz = xp.zeros({100 * MIB}, xp.uint8)")
    assert failure.ename == "OutOfMemoryError"
    assert "[scheduler] It may use 128 MiB of GPU 0 now" in failure.evalue
    assert f"{alice.name} holds 76 MiB with a request of 64 MiB" in failure.evalue
    assert "%gpu request 166MiB asks for that much" in failure.evalue
    assert bob.gpu("print(int(y.sum()))").stdout == "0\n", "the notebook goes on"


# A later version: it has neither the pool that is replaced, nor any other, nor the state of its random numbers.
CUPY = """
import pathlib, sys, tempfile
folder = tempfile.mkdtemp()
pathlib.Path(folder, "cupy.py").write_text('''
import types
__version__ = "99.0"
cuda = types.SimpleNamespace(is_available=lambda: False)
random = types.SimpleNamespace()
ndarray = type("ndarray", (), {})
''')
sys.path.insert(0, folder)
import cupy
sys.path.remove(folder)
"""


def test_a_library_that_cannot_be_held_to_the_share_is_told_once_and_so_is_what_else_it_lacks(books):
    alice, _ = books
    alice.gpu(CUPY)
    told = alice.gpu("print(42)")
    assert told.stdout == "42\n"
    sentences = (
        "cupy is not held to this notebook's share of the GPU, and the scheduler is not asked for more where ",
        "cupy 99.0 has no cupy._default_memory_pool, seen in ",
        "cupy 99.0 has no cupy.random._generator._random_states, seen in ",
    )
    for sentence in sentences:
        assert told.stderr.count(sentence) == 1, told.stderr
    assert "cupy" not in alice.gpu("del sys.modules['cupy'], cupy").stderr
    assert "cupy 99.0" not in alice.gpu("1").stderr
    assert sentences[0] in alice.run("%gpu log").stdout


def test_the_allowance_grows_for_who_stays(books):
    alice, bob = books
    alice.run("%gpu release")
    bob.entry(allowance_bytes=256 * MIB)
    assert bob.gpu(f"y = xp.zeros({200 * MIB}, xp.uint8)\nprint(y.size)").stdout == f"{200 * MIB}\n"
    bob.gpu("y = None")
    bob.run("%gpu trim")


def test_gpu_trim_gives_back_what_no_variable_uses(books):
    alice, _ = books
    alice.gpu(f"x = xp.zeros({40 * MIB}, xp.uint8)\nx = None")
    alice.entry(memory_used_bytes=56 * MIB)
    assert alice.run("%gpu trim").stdout == "Gave back 40 MiB of GPU memory that was cached.\n"
    alice.entry(memory_used_bytes=16 * MIB)
    assert "Nothing was cached" in alice.run("%gpu trim").stdout


def test_caches_make_room_for_a_guarantee_and_their_owner_stays(bench, books):
    alice, bob = books
    bob.run("%gpu release")
    alice.entry(allowance_bytes=256 * MIB)
    alice.gpu(f"x = xp.full({40 * MIB}, 7, xp.uint8)\ny = xp.zeros({150 * MIB}, xp.uint8)\ny = None")
    alice.entry(memory_used_bytes=206 * MIB)
    pid = alice.entry()["pid"]
    owner = bench.daemon.start_nls("run", "--request", "0.5", "--name", "owner", "--", "sleep", "60")
    bench.daemon.wait_for("owner", phase="running")
    assert alice.entry(phase="running")["pid"] == pid
    assert alice.gpu("print(int(x[-1]))").stdout == "7\n"
    owner.terminate()
    owner.wait(10)
    wait_until(lambda: bench.daemon.workload("owner") is None)
