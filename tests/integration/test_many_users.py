"""Two users' servers on one system daemon: each sees and controls their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hub import ANNA, BERT, CANNOT, hub
from nls_scheduler.processes.proc import look_up
from pages import named

if TYPE_CHECKING:
    import pathlib

LONG = pytest.mark.long("two users with a server each")

pytestmark = pytest.mark.skipif(CANNOT is not None, reason=CANNOT or "")


@LONG
def test_each_sees_and_controls_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    def make(name: str) -> pathlib.Path:
        return tmp_path_factory.mktemp(name)

    with hub(make, "1x256MiB") as (anna, bert):
        hers, his = anna.open("diagnosis.ipynb"), bert.open("bert.ipynb")
        hers.gpu("1")
        his.gpu("2")
        own = {book.name: book.entry(phase="running") for book in (hers, his)}
        owners = {name: entry["owner"] for name, entry in own.items()}
        assert owners == {"diagnosis.ipynb": ANNA, "bert.ipynb": BERT}
        for name, uid in owners.items():
            process = look_up(own[name]["pid"])
            assert process is not None
            assert process.uid == uid
        page = bert.page()
        seen = bert.until(page, lambda s: len(s["workloads"]) == 2 and named(s, "bert.ipynb") and s)
        assert named(seen, "bert.ipynb")["own"] is True
        other = named(seen, "another user's notebook")
        assert (other["own"], other["kernel_id"], other["path"]) == (False, None, None)
        assert "diagnosis" not in str(page.messages)
        assert seen["daemon"]["administrator"] is False
        for method, path in (("PATCH", ""), ("DELETE", ""), ("POST", "/suspend"), ("POST", "/resume")):
            refused = bert.ask(method, f"workloads/{other['id']}{path}", {"request": 0.1} if method == "PATCH" else {})
            # Jupyter's default authorizer lets a server's user do everything; the daemon does not.
            assert (refused.code, refused.json["title"]) == (403, "Not your workload"), (method, path)
        assert bert.ask("POST", f"workloads/{own['bert.ipynb']['id']}/suspend", {}).code == 202
        assert his.entry(phase="suspended")
        assert hers.entry()["phase"] == "running"
        assert hers.gpu("1 + 1").result == "2"
