"""Saved state as files on a volume: whole or not there, the user's own, and bit for bit what was saved."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import subprocess
import sys
from datetime import datetime
from importlib import metadata

import numpy as np
import pytest

import nls_scheduler
from nls_jupyter import saved_state
from nls_jupyter.saved_state import on_volume
from nls_jupyter.saved_state.kept import Begun
from nls_jupyter.saved_state.on_volume import KeptFiles, notebooks
from nls_jupyter.saved_state.volume_files import KeptStateError
from nls_scheduler.processes import whose_files
from saved_state_roundtrip import restore

MIB = 1 << 20


def save(names, room=None):
    """Descriptors and manifest; the saver stays open until the test ends."""
    saver = saved_state.Saver(room)
    manifest = saver.save(names, cell="[5]", function_globals={})
    return saver.descriptors(), manifest, saver


def write(files, names, taken=()):
    descriptors, manifest, saver = save(names)
    with contextlib.closing(saver):
        return files.write(descriptors, manifest, {"lines": "[3]"}, taken)


def load(files, *, earlier=False):
    kept, descriptors = files.load(earlier=earlier)
    names = {}
    report = restore(descriptors, names)
    for descriptor in descriptors:
        os.close(descriptor)
    assert not report.missing
    return kept, names


@pytest.fixture
def files(tmp_path):
    return KeptFiles(tmp_path / "kept", "/home/ada/work/digits.ipynb")


def place_of(files):
    (place,) = files.folder.iterdir()
    return place


def test_what_was_written_comes_back_bit_for_bit_and_shared_as_it_was(files):
    made = np.random.default_rng(1).normal(size=MIB)
    kept = write(files, {"a": made, "view": made[7:], "text": "x" * 100, "lines": (line for line in "ab")})
    loaded, names = load(files)
    assert loaded == kept == files.look()
    assert np.array_equal(names["a"], made)
    assert names["view"].base is names["a"]
    assert [name.name for name in loaded.variables] == ["a", "view", "text"]
    assert [name.name for name in loaded.missing] == ["lines"]
    assert loaded.made_in == {"lines": "[3]"}


def test_it_is_kept_where_no_package_says_its_version(files, monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    kept = write(files, {"a": np.arange(3)})
    assert kept.versions == {"python": sys.implementation.cache_tag, "nls-jupyter": nls_scheduler.__version__}


def test_what_spilled_to_a_disk_is_kept_too(files, tmp_path):
    class Room(saved_state.MachineRoom):
        def memory_bytes(self, held_bytes=0):
            del held_bytes
            return 2 * MIB

    made = np.random.default_rng(1).bytes(8 * MIB)
    descriptors, manifest, saver = save({"a": made}, Room(tmp_path))
    with contextlib.closing(saver):
        assert len(descriptors) == 2
        assert len(files.write(descriptors, manifest, {}).files) == 2
    assert load(files)[1]["a"] == made


def test_only_what_the_state_consists_of_takes_place_on_the_volume(files):
    saver = saved_state.Saver()
    with contextlib.closing(saver):
        for round_ in range(4):
            manifest = saver.save({"a": np.random.default_rng(round_).bytes(4 * MIB)}, cell=None, function_globals={})
        kept = files.write(saver.descriptors(), manifest, {})
    on_disk = sum(path.stat().st_blocks * 512 for path in place_of(files).iterdir())
    assert kept.size_bytes < 4.2 * MIB
    assert on_disk < 4.3 * MIB


def test_the_manifest_is_for_people_too_and_everything_is_the_users_own(files):
    write(files, {"a": np.ones(10)})
    place = place_of(files)
    told = json.loads((place / "manifest.json").read_text())
    assert told["notebook"] == "/home/ada/work/digits.ipynb"
    assert told["versions"]["numpy"] == np.__version__
    assert told["variables"][0]["name"] == "a"
    assert place.name.startswith("digits-")
    assert [path.stat().st_mode & 0o777 for path in (files.folder, place)] == [0o700] * 2
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}


def test_notebooks_of_one_name_in_two_folders_keep_their_own(files):
    other = KeptFiles(files.folder, "/home/ada/other/digits.ipynb")
    write(files, {"a": 1})
    write(other, {"a": 2})
    assert (load(files)[1]["a"], load(other)[1]["a"]) == (1, 2)
    assert {found.kept.notebook for found in notebooks(files.folder)[0]} == {files.notebook, other.notebook}
    assert other.drop()
    assert not other.drop()
    assert load(files)[1]["a"] == 1


def test_a_list_says_which_is_the_earlier_one_and_which_is_damaged(files):
    first, second = write(files, {"a": 1}), write(files, {"a": 2})
    found, unread = notebooks(files.folder)
    assert [(one.kept, one.earlier, one.damage) for one in found] in (
        [(second, False, None), (first, True, None)],
        [(first, True, None), (second, False, None)],  # within one second
    )
    (place_of(files) / second.files[0]).unlink()
    os.truncate(place_of(files) / first.files[0], 100)
    damage = {one.earlier: one.damage for one in notebooks(files.folder)[0]}
    assert damage == {False: f"{second.files[0]} is missing", True: "its files have been cut short"}
    assert not unread


def test_that_the_last_cell_was_interrupted_is_kept_with_it_and_versions_before_did_not_say(files):
    descriptors, manifest, saver = save({"a": 1})
    with contextlib.closing(saver):
        kept = files.write(descriptors, manifest, {}, interrupted=True)
    assert files.look() == kept
    assert kept.as_of == "as of cell [5] (which the end of its kernel interrupted)"
    manifest_path = place_of(files) / "manifest.json"
    content = json.loads(manifest_path.read_text())
    del content["interrupted"]
    manifest_path.write_text(json.dumps(content))
    assert files.look().as_of == "as of cell [5]"


def test_the_next_one_replaces_what_was_brought_back_and_the_same_again_writes_nothing(files):
    first = write(files, {"a": 1})
    second = write(files, {"a": 2}, {first.content})
    assert write(files, {"a": 2}) == second
    assert load(files)[1]["a"] == 2
    assert files.look(earlier=True) is None
    assert {path.name for path in place_of(files).iterdir()} == {"manifest.json", *second.files}


def test_what_nobody_has_brought_back_stays_as_the_earlier_one_until_somebody_does(files):
    first = write(files, {"a": 1})
    write(files, {"a": 2})
    third = write(files, {"a": 3})
    assert (load(files)[1]["a"], load(files, earlier=True)[1]["a"]) == (3, 1), "the first is not lost to the third"
    assert [found.kept.content for found in notebooks(files.folder)[0]].count(first.content) == 1
    fourth = write(files, {"a": 4}, {first.content})
    assert (load(files)[1]["a"], load(files, earlier=True)[1]["a"]) == (4, 3)
    named = {name for kept in (third, fourth) for name in kept.files}
    assert {path.name for path in place_of(files).iterdir()} == {"manifest.json", "earlier.json", *named}
    assert files.drop()
    assert not files.drop()


@pytest.mark.parametrize("step", ["sendfile", "fsync", "rename"])
def test_a_write_that_fails_at_any_step_leaves_what_was_there(files, monkeypatch, step):
    write(files, {"a": 1})
    before = {path.name for path in place_of(files).iterdir()}

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(KeptStateError, match="is full"):
            write(files, {"a": 2})
    assert {path.name for path in place_of(files).iterdir()} == before
    assert load(files)[1]["a"] == 1


def test_a_folder_that_is_still_to_be_made_has_nothing_and_one_that_cannot_be_made_is_named(files):
    assert notebooks(files.folder) == ([], [])
    with pytest.raises(KeptStateError, match=r"nothing is kept of /home/ada/work/digits\.ipynb in .*/kept$"):
        files.load()
    with pytest.raises(KeptStateError, match=r"/kept/more cannot be used: No such file"):
        notebooks(files.folder / "more")
    write(files, {"a": 1})
    with pytest.raises(KeptStateError, match="nothing earlier is kept of"):
        files.load(earlier=True)


def test_what_does_not_fit_is_refused_with_both_sizes_before_anything_is_written(files, monkeypatch):
    write(files, {"a": 1})
    disk = os.statvfs(files.folder)
    fields = [*disk[:4], 10, *disk[5:]]
    monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result(fields))
    with pytest.raises(KeptStateError, match=r"4 MiB do not fit in the .* that .*kept has left"):
        write(files, {"a": np.random.default_rng(1).bytes(4 * MIB)})
    assert load(files)[1]["a"] == 1


def test_a_save_in_the_middle_of_a_copy_has_it_copied_again(files, monkeypatch):
    descriptors, manifest, saver = save({"a": 1})
    copy, saves = on_volume._copy, []

    def disturbed(*args):
        if not saves:
            saves.append(saver.save({"a": 2}, cell="[6]", function_globals={}))
        copy(*args)

    with contextlib.closing(saver):
        monkeypatch.setattr(on_volume, "_copy", disturbed)
        files.write(descriptors, manifest, {})
    assert load(files)[1]["a"] == 2


def test_what_a_killed_writer_left_is_not_taken_for_anything_and_goes_with_the_next(files):
    first = write(files, {"a": 1})
    place = place_of(files)
    (place / "12.memory").write_bytes(b"half")
    (place / "13.draft").write_text("{")
    assert load(files)[1]["a"] == 1
    write(files, {"a": 2}, {first.content})
    assert len([*place.iterdir()]) == 2


def test_two_kernels_of_one_notebook_that_end_at_once_keep_both_states(files, monkeypatch):
    """As with two servers on one home, both drained."""
    descriptors, manifest, saver = save({"a": 2})
    copy, ended = on_volume._copy, []

    def copied_while_the_other_ends(source, target, extents):
        copy(source, target, extents)
        if not ended:
            ended.append(True)
            write(KeptFiles(files.folder, files.notebook), {"a": 1})

    monkeypatch.setattr(on_volume, "_copy", copied_while_the_other_ends)
    with contextlib.closing(saver):
        files.write(descriptors, manifest, {})
    assert load(files)[1]["a"] == 2
    assert load(files, earlier=True)[1]["a"] == 1


@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to("/dev/full")], ids=["fifo", "link"])
def test_what_lies_where_a_draft_is_written_is_neither_waited_for_nor_followed(files, monkeypatch, plant):
    first = write(files, {"a": 1})
    monkeypatch.setattr(on_volume, "_draft_name", lambda: "13.draft")
    plant(place_of(files) / "13.draft")
    write(files, {"a": 2}, {first.content})
    assert load(files)[1]["a"] == 2


def test_what_others_put_beside_the_files_is_left_alone(files):
    first = write(files, {"a": 1})
    others = [place_of(files) / name for name in (".ipynb_checkpoints", "notes.txt", "12.memory.d")]
    for path in others:
        path.mkdir()
    second = write(files, {"a": 2}, {first.content})
    assert load(files)[1]["a"] == 2
    mine = {"manifest.json", *second.files}
    assert {path.name for path in place_of(files).iterdir()} == {*mine, *(path.name for path in others)}
    assert files.drop()
    assert sorted(place_of(files).iterdir()) == sorted(others)
    assert not files.drop()
    assert files.look() is None


def test_what_cannot_be_removed_is_no_reason_that_nothing_is_kept(files):
    first = write(files, {"a": 1})
    (place_of(files) / "12.memory").mkdir()
    write(files, {"a": 2}, {first.content})
    assert load(files)[1]["a"] == 2


def test_nothing_is_removed_where_a_manifest_cannot_be_read(files):
    kept = write(files, {"a": 1})
    manifest = place_of(files) / "manifest.json"
    files.begin(["a"], "[6]").close()
    manifest.chmod(0o666)
    files.clear()
    manifest.chmod(0o600)
    assert load(files) == (kept, {"a": 1})


@pytest.mark.parametrize("name", ["manifest.json", "earlier.json"])
@pytest.mark.parametrize(
    "spoil",
    [lambda path: path.write_text('{"format": "of a newer version"}'), lambda path: path.chmod(0o666)],
    ids=["newer", "open to others"],
)
def test_what_cannot_be_read_is_set_aside_as_a_whole_and_told(files, name, spoil):
    write(files, {"a": 1})
    write(files, {"a": 2})
    spoil(place_of(files) / name)
    there = {path.name: path.read_bytes() for path in place_of(files).iterdir()}
    files.begin(["a"], "[6]").close()
    assert files.begun().names == ("a",), "where it is kept"
    write(files, {"a": 3})
    assert load(files)[1]["a"] == 3
    (aside,) = (place for place in files.folder.iterdir() if ".unread-" in place.name)
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == there
    assert any(str(aside) in why for why in notebooks(files.folder)[1])


def test_what_a_kernel_was_killed_over_is_known_until_it_is_cleared(files):
    write(files, {"a": 1})
    assert files.begun() is None
    note = files.begin(["a", "b"], "[6]")
    (place_of(files) / "12.memory").write_bytes(b"half")
    assert files.begun().goes_on
    files.clear()
    assert (place_of(files) / "12.memory").exists(), "it is still written"
    note.close()  # as the system does with a kernel that is killed
    begun = files.begun()
    assert (begun.names, begun.cell, begun.goes_on) == (("a", "b"), "[6]", False)
    files.clear()
    assert files.begun() is None
    assert not (place_of(files) / "12.memory").exists()
    assert load(files)[1]["a"] == 1


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_kept_or_told_to_be_lost_is_not_begun_any_more(files, kept):
    note = files.begin(["a"], "[6]")
    if kept:
        write(files, {"a": 1})
        assert files.begun() is None, "whoever is killed now has kept it"
    files.end(note)
    assert files.begun() is None


def test_a_volume_without_locks_keeps_as_others_do(files, monkeypatch):
    def without(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without)
    note = files.begin(["a"], "[6]")
    assert not files.begun().goes_on
    files.end(note)


def spoilt_manifest(place, **changed):
    path = place / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def test_files_that_a_manifest_names_elsewhere_are_not_opened(files):
    write(files, {"a": 1})
    spoilt_manifest(place_of(files), files=["../../12.memory"])
    with pytest.raises(KeptStateError, match="cannot be understood"):
        files.load()


def test_another_pythons_code_is_not_loaded(files):
    write(files, {"a": 1})
    spoilt_manifest(place_of(files), versions={"python": "cpython-310"})
    with pytest.raises(KeptStateError, match="saved by cpython-310, and this is"):
        files.load()


def test_damage_is_named(files):
    kept = write(files, {"a": 1})
    with (place_of(files) / kept.files[0]).open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(KeptStateError, match="is damaged"):
        files.load()


@pytest.mark.parametrize("name", ["manifest.json", "data", "."])
def test_what_others_can_write_is_not_loaded(files, name):
    kept = write(files, {"a": 1})
    path = place_of(files) / (kept.files[0] if name == "data" else name)
    path.chmod(path.stat().st_mode | 0o002)
    with pytest.raises(KeptStateError, match="can be written by other users"):
        files.load()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda place: place.chmod(0o777), "can be written by other users, so that it is not loaded; chmod go-w"),
        (lambda place: (place / "manifest.json").chmod(0o666), "can be written by other users"),
        (lambda place: (place / "manifest.json").write_text("{"), "cannot be understood"),
        (
            lambda place: place.rename(place.with_name("x")).parent.joinpath(place.name).symlink_to("x"),
            "cannot be used",
        ),
    ],
)
def test_all_that_is_kept_is_listed_with_what_is_not_read_and_why(files, spoil, says):
    write(files, {"a": 1})
    place = place_of(files)
    (files.folder / "lost+found").mkdir(mode=0o777)
    assert [found.kept.notebook for found in notebooks(files.folder)[0]] == [files.notebook]
    assert notebooks(files.folder)[1] == []
    spoil(place)
    found, [why] = notebooks(files.folder)
    assert found == []
    assert says in why
    assert str(place) in why


@pytest.mark.parametrize("name", ["manifest.json", "data"])
@pytest.mark.parametrize("kind", ["symlink", "link"])
def test_links_are_not_followed(files, tmp_path, name, kind):
    kept = write(files, {"a": 1})
    path = place_of(files) / (kept.files[0] if name == "data" else name)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    getattr(os, kind)(elsewhere, path)
    with pytest.raises(KeptStateError, match=r"cannot be used|not a plain file"):
        files.load()


def test_a_group_may_write_where_nobody_else_is_in_it(files, monkeypatch):
    """A pod's fsGroup."""
    kept = write(files, {"a": 1})
    path = place_of(files) / kept.files[0]
    path.chmod(0o660)
    monkeypatch.setattr(whose_files, "_is_ours", lambda group: group == path.stat().st_gid)
    assert load(files)[1]["a"] == 1
    monkeypatch.setattr(whose_files, "_is_ours", lambda _: False)
    with pytest.raises(KeptStateError, match="can be written by other users"):
        files.load()


LOAD = """
import sys
from pathlib import Path
from nls_jupyter.saved_state.on_volume import KeptFiles
from nls_jupyter.saved_state.volume_files import KeptStateError
try:
    KeptFiles(Path(sys.argv[1]), sys.argv[2]).load()
except KeptStateError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of two users")
def test_another_users_files_are_not_loaded_not_even_by_root(files):
    kept = write(files, {"a": 1})
    data = place_of(files) / kept.files[0]
    os.chown(data, 65534, 65534)
    command = [sys.executable, "-c", LOAD, str(files.folder), files.notebook]
    assert "belongs to another user" in subprocess.check_output(command, text=True)
    os.chown(data, 0, 0)
    os.chown(place_of(files), 65534, 65534)
    assert "belongs to another user" in subprocess.check_output(command, text=True)
    found, [why] = notebooks(files.folder)
    assert not found
    assert "belongs to another user" in why


def test_what_was_kept_in_another_year_is_shown_with_it() -> None:
    this_year = datetime.now().astimezone().year
    shown = [Begun(f"{year}-06-15T12:00:00+00:00", None, (), goes_on=False).at for year in (this_year, this_year - 1)]
    assert [str(this_year) in shown[0], f" Jun {this_year - 1} " in shown[1]] == [False, True]
