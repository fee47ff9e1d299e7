"""A training on a real Gpu goes on to the same bits, though it is suspended twice on the way."""

from __future__ import annotations

import pytest

from waiting import wait_until

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
pytest.importorskip("torch")

# Convolutions, dropout by the device's random numbers, half precision, a schedule and a loader that shuffles.
TRAINING = """
import torch
from torch import nn
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
torch.manual_seed(1)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2, padding=1),
    nn.Dropout(0.2), nn.Flatten(), nn.Linear(16 * 8 * 8, 10),
).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=100)
scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
numbers = torch.Generator().manual_seed(7)
data = torch.utils.data.TensorDataset(torch.randn(256, 3, 16, 16, generator=numbers), torch.arange(256) % 10)
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, generator=numbers)
losses = []
def epoch():
    for x, y in loader:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.float16 if device == "cuda" else torch.bfloat16):
            loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        losses.append(loss.item())
def bits():
    states = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    return [tensor.detach().cpu().numpy().tobytes() for tensor in (*net.state_dict().values(), *states)]
"""
EPOCHS = 3
UNDISTURBED = f"""
def whole():
    space = {{"__name__": "undisturbed", "device": device}}
    exec({TRAINING!r}, space)
    for _ in range({EPOCHS}): space["epoch"]()
    return space["losses"], space["bits"]()
expected = whole()
print(expected == whole(), len(set(expected[0])))
"""


def test_it_ends_with_the_same_bits_though_it_is_suspended_twice(node):
    book = node.bench.open()
    assert book.gpu(f"device = {node.torch!r}{UNDISTURBED}").stdout.split() == ["True", str(EPOCHS * 8)]
    book.gpu(TRAINING)
    book.gpu("epoch()")
    for _ in range(EPOCHS - 1):
        pid = book.entry()["pid"]
        assert "uspended" in book.run("%gpu suspend").stdout
        wait_until(lambda: book.entry()["phase"] == "suspended")
        book.gpu("epoch()")
        assert book.entry()["pid"] != pid
    assert book.gpu("losses == expected[0], bits() == expected[1]").result == "(True, True)"
