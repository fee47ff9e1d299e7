"""A daemon and notebooks of the release before meet those of today, in both directions: nothing is lost.

The release before is the newest tag `vX.Y.Z` that is not of this version. As long as there is none, the commit below
takes its place: it has a journal of another format, and other messages, than today.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from daemon_process import ROOT
from environments import Environment, hatchling, plain
from nls_scheduler import __version__
from over_ipc import over_ipc
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEFORE_THE_FIRST_RELEASE = "2cb0ce2"
TIMEOUT_S = 60
pytestmark = [pytest.mark.long("the release before beside today's"), pytest.mark.timeout(300)]


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def release_before() -> str | None:
    """A tag or a commit; None where this checkout has no history."""
    tags = [tag for tag in git("tag", "--list", "v*", "--sort=-v:refname").split() if tag != f"v{__version__}"]
    return next(iter(tags), None) or git("rev-parse", "--verify", "--quiet", f"{BEFORE_THE_FIRST_RELEASE}^{{commit}}")


@pytest.fixture(scope="module")
def today(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    wheel = hatchling(ROOT, "wheel", tmp_path_factory.mktemp("wheel-of-today"))
    return Environment(tmp_path_factory.mktemp("today") / "venv", wheel)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    commit = release_before()
    if not commit:
        pytest.skip("this checkout has neither a tag of a release nor its commits")
    source = tmp_path_factory.mktemp("sources") / "before"
    subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True, capture_output=True)
    clone = ["git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(source)]
    subprocess.run(clone, check=True, capture_output=True)
    subprocess.run(["git", "checkout", "--quiet", commit], cwd=source, check=True, capture_output=True)
    wheel = hatchling(source, "wheel", tmp_path_factory.mktemp("wheel-of-before"))
    return Environment(tmp_path_factory.mktemp("before") / "venv", wheel)


class Node:
    """A socket, a journal, and whichever release's daemon is there at the moment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "nls.sock"
        self.journal = directory / "state" / "journal.db"
        # The release before leaves an empty folder in there.
        own = {"IPYTHONDIR": str(directory / "ipython"), "JUPYTER_RUNTIME_DIR": str(directory / "rt")}
        self.environment = plain(NLS_SOCKET=str(self.socket), NLS_STANDBY_MEMORY="0", **own)
        self._daemon: subprocess.Popen[str] | None = None
        self._notebooks: list[Notebook] = []

    def nls(self, release: Environment, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(release.python), "-m", "nls_scheduler", *arguments],
            cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    def start(self, release: Environment) -> str | None:
        """Returns once its daemon answers, or else what it said at its end."""
        command = [str(release.python), "-m", "nls_scheduler", "--socket", str(self.socket)]
        command += ["--state-dir", str(self.journal.parent), "up", "--simulate", "2x16GiB", "--context-memory", "16MiB"]
        daemon = subprocess.Popen(
            command, cwd=self.directory, env=self.environment, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        assert daemon.stderr is not None
        told = []
        for line in daemon.stderr:
            told.append(line)
            if "serving" in line:
                self._daemon = daemon
                return None
        daemon.stderr.close()
        assert daemon.wait(TIMEOUT_S) != 0
        return "".join(told)

    def stop(self) -> None:
        if self._daemon is not None:
            self._daemon.send_signal(signal.SIGTERM)
            _, rest = self._daemon.communicate(timeout=TIMEOUT_S)
            assert self._daemon.returncode == 0, rest
            assert "Traceback" not in rest
            self._daemon = None

    def instead(self, release: Environment) -> str | None:
        """An upgrade, or its opposite."""
        self.stop()
        return self.start(release)

    def notebook(self, release: Environment, name: str, *, uses_gpu: bool = True) -> Notebook:
        self._notebooks.append(Notebook(self, release, name, uses_gpu=uses_gpu))
        return self._notebooks[-1]

    def workload(self, release: Environment, name: str) -> Any:
        """Its entry in the status, once it is on a GPU."""

        def found() -> Any:
            done = self.nls(release, "status", "--json")
            assert done.returncode == 0, done.stderr
            entries = json.loads(done.stdout)["workloads"]
            return next((e for e in entries if e["name"] == name and e["phase"] == "running"), None)

        return wait_until(found, TIMEOUT_S)

    def close(self) -> None:
        for notebook in self._notebooks:
            notebook.manager.shutdown_kernel()
        if self._daemon is not None:
            self.stop()


class Notebook:
    """A kernel of one release."""

    def __init__(self, node: Node, release: Environment, name: str, *, uses_gpu: bool = True) -> None:
        kernels = node.directory / name
        (kernels / "fresh").mkdir(parents=True)
        argv = [str(release.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        about = {"argv": argv, "display_name": name, "language": "python"}
        (kernels / "fresh" / "kernel.json").write_text(json.dumps(about))
        specs = KernelSpecManager(kernel_dirs=[str(kernels)])
        self.manager = over_ipc(KernelManager, kernels, kernel_name="fresh", kernel_spec_manager=specs)
        self.manager.start_kernel(env=node.environment, cwd=str(kernels), stderr=subprocess.DEVNULL)
        if uses_gpu:
            self.run(f"%gpu request 0.25 --limit 1.0 --name {name}")

    def run(self, code: str) -> str:
        """What the cell printed on stdout. Raises AssertionError with what else there was where it fails."""
        client = self.manager.blocking_client()
        client.start_channels()
        told: dict[str, list[str]] = {}

        def collect(message: Any) -> None:
            content = message["content"]
            told.setdefault(content.get("name", message["msg_type"]), []).append(str(content.get("text", content)))

        try:
            client.wait_for_ready(timeout=TIMEOUT_S)
            reply = client.execute_interactive(code, output_hook=collect, timeout=TIMEOUT_S)
        finally:
            client.stop_channels()
        assert reply["content"]["status"] == "ok", reply["content"]["evalue"]
        return "".join(told.get("stdout", []))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


def history(node: Node, release: Environment) -> list[str]:
    done = node.nls(release, "history", "--json")
    assert done.returncode == 0, done.stderr
    return [entry["event"] for entry in json.loads(done.stdout)]


def test_a_newer_daemon_goes_on_with_the_journal_and_the_notebooks_of_the_release_before(
    node: Node, before: Environment, today: Environment
) -> None:
    assert node.start(before) is None
    old = node.notebook(before, "old")
    old.run("%%gpu\nimport os\nx = 41")
    pid = node.workload(before, "old")["pid"]
    told = history(node, before)
    assert node.instead(today) is None
    assert node.workload(today, "old")["pid"] == pid, "nobody's GPU process ends for an upgrade"
    assert old.run("%%gpu\nx += 1\nprint(x)") == "42\n"
    assert history(node, today)[: len(told)] == told
    new = node.notebook(today, "new")
    assert new.run("%%gpu\nprint(6 * 7)") == "42\n"
    assert node.nls(today, "suspend", "old").returncode == 0
    assert old.run("%%gpu\nprint(x)") == "42\n", "a newer daemon's order is obeyed, and the variables come back"
    assert node.nls(today, "replay", str(node.journal)).returncode == 0


def test_an_older_daemon_leaves_a_newer_journal_as_it_is_and_says_so_in_a_sentence(
    node: Node, before: Environment, today: Environment
) -> None:
    assert node.start(today) is None
    new = node.notebook(today, "new")
    new.run("%%gpu\nx = 42")
    pid = node.workload(today, "new")["pid"]
    told = history(node, today)
    said = node.instead(before)
    if said is None:  # it knows that journal: then it goes on with all that is in it
        assert new.run("%%gpu\nprint(x)") == "42\n"
    else:
        assert "Traceback" not in said
        assert re.fullmatch(r"(?:\d{4}.*\n)*nls: .*written by a newer nls .*\n", said), said
    assert node.instead(today) is None
    assert node.workload(today, "new")["pid"] == pid
    assert new.run("%%gpu\nprint(x)") == "42\n"
    assert history(node, today)[: len(told)] == told


def test_a_newer_notebook_works_with_the_daemon_of_the_release_before(
    node: Node, before: Environment, today: Environment
) -> None:
    assert node.start(before) is None
    new = node.notebook(today, "new")
    assert new.run("%%gpu\nx = 42\nprint(x)") == "42\n"
    assert node.nls(today, "suspend", "new").returncode == 0
    assert new.run("%%gpu\nprint(x)") == "42\n"
    doctor = node.nls(today, "doctor")
    assert "no daemon of ours" not in doctor.stdout


def test_a_notebook_goes_on_with_the_version_that_its_kernel_has_begun_with(
    node: Node, today: Environment, tmp_path: Path
) -> None:
    """Whatever `pip install` puts in its place, also while the files are gone."""
    installed = Environment(tmp_path / "venv", hatchling(ROOT, "wheel", tmp_path / "wheel"))
    assert node.start(today) is None
    old = node.notebook(installed, "old")
    old.run("%%gpu\nx = 41")

    packages = [installed.site_packages / name for name in ("nls_jupyter", "nls_scheduler")]
    aside = [package.rename(tmp_path / package.name) for package in packages]
    assert node.nls(today, "suspend", "old").returncode == 0
    assert old.run("%%gpu\nx += 1\nprint(x)") == "42\n", "pip has removed the files, and has written none yet"

    for package, kept in zip(packages, aside, strict=True):
        shutil.copytree(kept, package)
    shared = packages[0] / "between" / "save_stops.py"
    shared.write_text(shared.read_text().replace('Struct("=QQ")', 'Struct("=QQQ")'))
    (packages[1] / "processes" / "guardian.py").write_text("raise SystemExit('this is another version')\n")
    assert node.nls(today, "suspend", "old").returncode == 0
    assert old.run("%%gpu\nimport sys\nprint(x, [entry for entry in sys.path if 'fd' in entry])") == "42 []\n"
    old.run("%gpu restart")
    assert old.run("%%gpu\nprint('x' in globals())") == "False\n"


def test_a_kernel_that_uses_the_gpu_first_when_another_version_is_there_works_or_says_so(
    node: Node, today: Environment, tmp_path: Path
) -> None:
    installed = Environment(tmp_path / "venv", hatchling(ROOT, "wheel", tmp_path / "wheel"))
    assert node.start(today) is None
    old = node.notebook(installed, "old", uses_gpu=False)
    assert old.run("print('has begun')") == "has begun\n"
    package = installed.site_packages / "nls_jupyter"
    aside = package.rename(tmp_path / package.name)
    with pytest.raises(AssertionError, match=r"was replaced after this kernel had begun.*: restart it"):
        old.run("%gpu request 0.25")
    shutil.copytree(aside, package)
    old.run("%gpu request 0.25")
    assert old.run("%%gpu\nprint(6 * 7)") == "42\n"
