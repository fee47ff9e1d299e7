"""A function of a cell comes back as it was in its notebook: with its namespace, and what belongs to that."""

from __future__ import annotations

import builtins

from nls_jupyter.saved_state import user_names
from saved_state_roundtrip import cells, restore, saved


def test_functions_that_come_back_leave_the_namespace_the_module_of_builtins():
    before = cells("def largest(numbers): return __builtins__.max(numbers)")
    namespace = {"__builtins__": builtins}
    with saved(user_names(before, {}), function_globals=before) as (descriptors, _):
        restore(descriptors, namespace)
    assert namespace["__builtins__"] is builtins
    assert namespace["largest"]([1, 3, 2]) == 3
