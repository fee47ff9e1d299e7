"""Loggers: what cells set of them, whichever way, and loggers of a class of the user's own."""

from __future__ import annotations

import pytest

from left_out import thinned
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


@pytest.mark.parametrize(("before", "after"), thinned(ATTRIBUTES.values(), 3, "settings of loggers"), ids=ATTRIBUTES)
def test_what_is_set_of_it_as_an_attribute_comes_back(before, after):
    assert carried_on(FRESH + before, after) == []


def test_a_library_s_is_still_of_the_library_s_class():
    pytest.importorskip("absl.logging")
    before = "import logging, absl.logging; logging.getLogger('absl').setLevel(10); del absl"
    after = "import absl.logging; assert type(logging.getLogger('absl')) is absl.logging.ABSLLogger"
    assert carried(before, after) == []


OWN = """
import logging
class Counting(logging.Logger):
    def __init__(self, name): super().__init__(name); self.count, self.seen = 5, []
    def handle(self, record): self.count += 1; self.seen.append(record.getMessage()); super().handle(record)
logging.setLoggerClass(Counting)
mine, child = logging.getLogger("mine"), logging.getLogger("mine.child.of")
logging.setLoggerClass(logging.Logger)
"""

OWNS = {
    "its class and attributes": (
        "mine.warning('x')",
        "assert type(mine) is Counting and mine is logging.getLogger('mine') and (mine.count, mine.seen) == (6, ['x'])",
    ),
    "its place among all": (
        "plain = logging.getLogger('mine.child')",
        (
            "assert type(plain) is logging.Logger and type(child) is Counting\n"
            "assert child.parent is plain and plain.parent is mine and mine.parent is logging.root"
        ),
    ),
    "one without a name": (
        "seen = mine.seen; del mine, child",
        "mine = logging.getLogger('mine'); mine.error('y'); assert mine.seen is seen == ['y'] and mine.count == 6",
    ),
    "what is set of it": (
        (
            "mine.setLevel(15); mine.propagate = False; handler = logging.NullHandler(); mine.addHandler(handler)\n"
            "accepts = lambda record: True\nmine.addFilter(accepts)"
        ),
        (
            "assert (mine.level, mine.propagate, mine.handlers, mine.filters) == (15, False, [handler], [accepts])\n"
            "mine.info('z'); assert mine.seen == ['z']"
        ),
    ),
    "what is set of another one of it, as an attribute": (
        "logging.setLoggerClass(Counting); logging.getLogger('urllib3').disabled = True",
        "assert logging.getLogger('urllib3').disabled and type(logging.getLogger('urllib3')) is Counting",
    ),
    "an adapter of it": (
        "adapter = logging.LoggerAdapter(mine, {'a': 1})",
        "assert adapter.logger is mine",
    ),
}


@pytest.mark.parametrize(("before", "after"), thinned(OWNS.values(), 3, "settings of loggers"), ids=OWNS)
def test_one_of_an_own_class_comes_back(before, after):
    assert carried_on(OWN + before, after) == []


def test_one_of_an_own_class_in_a_module_is_there_once(tmp_path):
    (tmp_path / "their_loggers.py").write_text(
        "import logging\nclass Own(logging.Logger): tag = None\n"
        "logging.setLoggerClass(Own); log = logging.getLogger('theirs'); logging.setLoggerClass(logging.Logger)\n"
    )
    before = f"import sys; sys.path.append({str(tmp_path)!r}); import their_loggers; their_loggers.log.tag = [1]"
    after = "import logging\nassert their_loggers.log is logging.getLogger('theirs') and their_loggers.log.tag == [1]"
    assert carried(before, after) == []


UNKNOWN = {
    "of logging's class": "own = logging.Logger('unknown', 15)",
    "of an own class": "class Own(logging.Logger): tag = None\nown = Own('unknown', 15); own.tag = [1]",
}


@pytest.mark.parametrize("made", UNKNOWN.values(), ids=UNKNOWN)
def test_one_that_nobody_finds_by_its_name_stays_so(made):
    before = (
        f"import logging\n{made}\nhandler, accepts = logging.NullHandler(), lambda record: True\n"
        "own.addHandler(handler); own.addFilter(accepts); own.setLevel(25)\n"
        "above = own.parent = logging.getLogger('above')"
    )
    after = (
        "assert (own.name, own.level, own.handlers, own.filters) == ('unknown', 25, [handler], [accepts])\n"
        "assert own.parent is above is logging.getLogger('above') and getattr(own, 'tag', [1]) == [1]\n"
        "assert 'unknown' not in logging.root.manager.loggerDict and own.isEnabledFor(25) and not own.isEnabledFor(20)"
    )
    assert carried_on(before, after) == []
