"""A short campaign: what `make chaos` does for hours, for a minute."""

from __future__ import annotations

import asyncio

import pytest

from campaign import play, told

SEED = 20261122


@pytest.mark.long("a short campaign of chaos: two minutes")
@pytest.mark.timeout(600)
def test_no_user_loses_anything_in_silence() -> None:
    outcome = asyncio.run(play(SEED, minutes=1.0))
    assert outcome["figures"]["cells"] > 0
    assert not told(outcome, SEED), told(outcome, SEED)
