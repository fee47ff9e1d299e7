"""Loggers: what cells set of them, whichever way, and loggers of a class of the user's own."""

from __future__ import annotations

import pytest

from saved_state_processes import carried, carried_on

FRESH = "import logging, logging.config\nnoisy, chatty = logging.getLogger('noisy'), logging.getLogger('chatty')\n"
ATTRIBUTES = {
    "one that is silent": (
        "noisy.disabled = True",
        "assert noisy.disabled and not chatty.disabled",
    ),
    "one that tells nobody above": (
        "chatty.propagate = False",
        "assert not chatty.propagate and noisy.propagate",
    ),
    "a library's, before and after its import": (
        "logging.getLogger('urllib3').disabled = True; import urllib3; logging.getLogger('urllib3.util').propagate = 0",
        (
            "assert logging.getLogger('urllib3').disabled and not logging.getLogger('urllib3.util').propagate\n"
            "import urllib3; assert logging.getLogger('urllib3').disabled"
        ),
    ),
    "the root": ("logging.root.disabled = True", "assert logging.root.disabled"),
    "all that a configuration silences": (
        "logging.config.dictConfig({'version': 1, 'loggers': {'chatty': {'level': 'INFO'}}})",
        "assert noisy.disabled and not chatty.disabled and chatty.level == 20",
    ),
    "one with a level, as an attribute": (
        "noisy.level = 35; chatty.level = 15",
        "assert (noisy.level, chatty.level) == (35, 15)",
    ),
    "one that a library has silenced, and a cell has not": (
        "logging.getLogger('asyncio').disabled = True\n#%%\nlogging.getLogger('asyncio').disabled = False",
        "assert not logging.getLogger('asyncio').disabled",
    ),
    "the last resort's level": ("logging.lastResort.setLevel(50)", "assert logging.lastResort.level == 50"),
}


@pytest.mark.parametrize(("before", "after"), ATTRIBUTES.values(), ids=ATTRIBUTES)
def test_what_is_set_of_it_as_an_attribute_comes_back(before, after):
    assert carried_on(FRESH + before, after) == []


def test_a_library_s_is_still_of_the_library_s_class():
    pytest.importorskip("absl.logging")
    before = "import logging, absl.logging; logging.getLogger('absl').setLevel(10); del absl"
    after = "import absl.logging; assert type(logging.getLogger('absl')) is absl.logging.ABSLLogger"
    assert carried(before, after) == []
