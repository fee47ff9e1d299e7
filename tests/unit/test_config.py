from __future__ import annotations

import grp
import os
import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model.policy import Policy
from nls_scheduler.daemon.config import ConfigError, NlsScheduler, load
from nls_scheduler.daemon.settings import DaemonSettings

if TYPE_CHECKING:
    from pathlib import Path

NO_DICTS = ("", "foo", "[1]", "{", "{a:1}", "{1 2}", "{{}}", "{" * 300 + "}" * 300)


def test_without_a_file_everything_is_as_the_policy_says() -> None:
    settings = load([], [])
    assert settings.policy == Policy()
    assert (settings.defaults.request, settings.defaults.limit) == ("0.5", "1.0")


def test_flags_win_over_files_and_the_first_directory_wins(tmp_path: Path) -> None:
    user, system = tmp_path / "user", tmp_path / "system"
    for directory, seconds in ((user, 11), (system, 22)):
        directory.mkdir()
        (directory / "nls_config.py").write_text(f"c.NlsScheduler.cool_down_s = {seconds}\n")
    (system / "nls_config.json").write_text('{"NlsScheduler": {"default_request": "0.25", "max_failures": 9}}')
    settings = load(["max_failures=2", "max_workloads_per_gpu=None"], [str(user), str(system)])
    assert settings.policy.cool_down_s == 11
    assert settings.policy.max_failures == 2
    assert settings.policy.max_workloads_per_gpu is None
    assert settings.defaults.request == "0.25"


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("reclaim_deadline_s=1", "stop_grace_s = 2 contradicts reclaim_deadline_s = 1"),
        ("reclaim_deadline_s=0", "nothing could be done"),
        ("interrupt_grace_s=0", "nothing could be done"),
        ("cool_down_s=-1", "0 or more"),
        ("cool_down_s=nan", "a finite number, 0 or more"),
        ("reclaim_deadline_s=1e400", "a finite number, 0 or more"),
        ("cool_down_s=soon", "cool_down_s cannot be 'soon'"),
        ("max_failures=0", "1 or more"),
        ("max_workloads_per_gpu=0", "1 or more"),
        ("poll_interval_s=0", "the shortest is"),
        ("default_request=much", "A default size cannot be used"),
        ("default_limit=0.25", "contradicts default_limit"),
        ("cooldown_s=1", "did you mean cool_down_s?"),
        ("zzz=1", "there are "),
        ("admin_group=no-such-group-here", "no such group"),
        ("show_names=some", "show_names"),
        ("max_connections=0", "1 or more"),
        ("max_workloads_per_user=0", "1 or more"),
        ("max_followers_per_user=0", "1 or more"),
        ("max_connections_per_user=0", "1 or more"),
        ("max_submissions_per_s=0", "nothing could be done"),
        ("max_submissions_at_once=0", "1 or more"),
        ("client_timeout_s=0", "nothing could be done"),
        ("cool_down_s", "is not NAME=VALUE"),
        *(
            (f"queues={text}", f"queues cannot be {text!r}: write for example --set queues=\"{{'research'")
            for text in NO_DICTS
        ),
        ("pools=7", "pools cannot be '7': write for example --set pools=\"{'a100': {'gpus'"),
        ("freeze_cells=yes", "freeze_cells cannot be 'yes': write for example --set freeze_cells=True."),
        ("max_failures=1.5", "max_failures cannot be '1.5': write for example --set max_failures=5."),
        ("placement={{}}", "placement cannot be '{{}}': write for example --set placement=spread."),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_one_sentence(flag: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load([flag], [])
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("nls_config.py", "c.NlsScheduler.cool_down_s = 'x'", "cool_down_s"),
        ("nls_config.py", "c.NlsScheduler.colour = 1", "nls_config.py cannot be read: There is no setting 'colour'"),
        (
            "nls_config.json",
            '{"NlsScheduler": {"cooldown_s": 1}}',
            "nls_config.json cannot be read: There is no setting",
        ),
        ("nls_config.json", '{"NlsScheduler": {"cooldown_s": 1}}', "did you mean cool_down_s?"),
        ("nls_config.py", "1 / 0", "cannot be read: division by zero"),
        ("nls_config.py", "raise SystemExit", "cannot be read: it ends Python"),
        ("nls_config.py", "import sys; sys.exit(3)", "cannot be read: it ends Python"),
        ("nls_config.py", "raise KeyboardInterrupt", "cannot be read: it ends Python"),
        ("nls_config.json", "{", "cannot be read"),
        (
            "nls_config.json",
            "[]",
            'cannot be read: it is no object: write {"NlsScheduler": {"reclaim_deadline_s": 10}}.',
        ),
        ("nls_config.json", "null", "cannot be read: it is no object"),
        ("nls_config.py", "c.NlsScheduler.cool_down_s = 10**400", "out of all bounds"),
        ("nls_config.py", "c.NlsScheduler.admin_group = '99999999999999999999'", "so large a number"),
        ("nls_config.py", "c.NlsScheduler.queues = {'a': {'users': [99999999999999999999]}}", "so large a number"),
        ("nls_config.json", '{"NlsScheduler": [1]}', "no settings with their values"),
        ("nls_config.py", "c.NlsScheduler = 3", "cannot be read"),
        ("nls_config.py", "c.NlsSchedular.cool_down_s = 3", "something of NlsSchedular"),
        ("nls_config.json", '{"nlsscheduler": {"cool_down_s": 3}}', "something of nlsscheduler"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load([], [str(tmp_path)])
    assert says in str(caught.value)


def test_what_has_the_name_of_a_configuration_and_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder" / "nls_config.json").mkdir(parents=True)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "nls_config.py").symlink_to(tmp_path / "nowhere")
    for name in ("folder/nls_config.json", "link/nls_config.py"):
        with pytest.raises(ConfigError, match=f"{name} cannot be read: it is no file"):
            load([], [str((tmp_path / name).parent)])


def test_what_is_no_folder_has_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert load([], [str(tmp_path / "file"), str(tmp_path / "nowhere")]).policy == Policy()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can ask as another user")
def test_a_folder_that_the_daemon_may_not_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nls_config.py").write_text("c.NlsScheduler.cool_down_s = 3")
    tmp_path.chmod(0)
    code = f"import os; from nls_scheduler.daemon.config import load; os.setuid(12345); load([], [{str(tmp_path)!r}])"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    tmp_path.chmod(0o700)
    assert f"ConfigError: The configuration {tmp_path}/nls_config.py cannot be read: [Errno 13]" in asked.stderr


def test_the_administrators_group_is_named_or_numbered() -> None:
    group = grp.getgrgid(0).gr_name
    assert load([f"admin_group={group}"], []).access.admin_gid == 0
    assert load(["admin_group=4711"], []).access.admin_gid == 4711
    assert load([], []).access.admin_gid is None


def test_only_the_system_daemon_hides_names_unless_told_otherwise() -> None:
    assert load([], []).access.show_names == "all"
    assert load([], [], shared=True).access.show_names == "admins"
    assert load(["show_names=own"], [], shared=True).access.show_names == "own"


def test_every_number_of_the_policy_can_be_set() -> None:
    assert {field.name for field in fields(Policy)} <= set(NlsScheduler.class_trait_names(config=True))


@pytest.mark.parametrize("name", sorted(DaemonSettings().read_at_start))
def test_a_clusters_policy_comes_too_late_for_what_is_read_at_the_start(name: str) -> None:
    value = getattr(NlsScheduler(), name)
    load([f"{name}={value}"] if value else [], [])
    with pytest.raises(ConfigError, match=f"^{name} is read at the daemon's start only.*--set={name}="):
        load([], [], cluster={name: value})
