"""A training notebook goes on to the same losses, bit for bit, whatever becomes of its GPU process between cells."""

from __future__ import annotations

import os
import signal

import pytest

from notebooks import Bench, Book
from waiting import wait_until

pytest.importorskip("torch")

CELLS = (
    """
import torch
from torch import nn
torch.manual_seed(1)
""",
    """
net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
""",
    """
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, 60)
""",
    """
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
""",
    """
losses = []
def epoch():
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
""",
)
LOOP = "".join(CELLS)
EPOCHS = 4
# The same without a cell in between, in a namespace of its own.
UNDISTURBED = f"""
space = {{"__name__": "undisturbed"}}
exec({LOOP!r}, space)
for _ in range({EPOCHS}): space["epoch"]()
expected = space["losses"]
del space
len(set(expected))
"""


def kill(book: Book) -> None:
    assert "Saved after cell" in book.run("%gpu vars").stdout
    os.kill(book.entry()["pid"], signal.SIGKILL)


def suspend(book: Book) -> None:
    assert "uspended" in book.run("%gpu suspend").stdout


@pytest.mark.long("a training that is killed after every cell: killed, suspended and moved once each here")
@pytest.mark.timeout(300)  # eleven times import torch
def test_it_goes_on_to_the_same_losses_when_it_is_killed_after_every_cell(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Bench(tmp_path_factory.mktemp("bench"), "1x256MiB") as bench:
        book = bench.open()
        assert book.gpu(UNDISTURBED).result == "16"
        pids = set()
        for cell in (*CELLS, "epoch()", "epoch()"):
            book.gpu(cell)
            pids.add(book.entry()["pid"])
            kill(book)
        assert book.gpu("len(losses), losses == expected[:8]").result == "(8, True)"
        assert len(pids) == len(CELLS) + 2


@pytest.mark.long("a training that is killed, suspended and moved")
def test_it_goes_on_to_the_same_losses_when_it_is_killed_suspended_and_moved(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Bench(tmp_path_factory.mktemp("bench"), "2x256MiB") as bench:
        neighbour, book = bench.open(), bench.open()
        neighbour.gpu("1")
        assert book.gpu(UNDISTURBED).result == "16"
        book.gpu(LOOP)
        book.gpu("epoch()")
        kill(book)
        book.gpu("epoch()")
        suspend(book)
        book.gpu("epoch()")
        borrowed, pid = book.entry()["current"], book.entry()["pid"]
        training = bench.daemon.start_nls("run", "--request", "1.0", "--name", "training", "--", "sleep", "600")
        wait_until(lambda: (now := book.entry())["current"] not in ([], borrowed) and now["pid"] not in {None, pid})
        book.gpu("epoch()")
        assert book.gpu("len(losses), losses == expected").result == "(16, True)"
        training.send_signal(signal.SIGTERM)
        training.wait(15)
