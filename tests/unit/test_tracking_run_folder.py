"""One run per folder, and checkpoints that are found or reported damaged."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from rlvr.errors import ConfigError, UserError
from rlvr.tracking.run_folder import RunFolder, checkpoint_steps, last_checkpoint, resolve_checkpoint


def save(folder: RunFolder, step: int) -> None:
    with folder.checkpoint(step) as partial:
        (partial / "model.safetensors").write_bytes(b"weights")


def test_a_new_folder_is_made_with_its_parents(tmp_path):
    folder = RunFolder.create(tmp_path / "a" / "b")
    assert folder.ledger.is_dir()
    assert folder.checkpoints.is_dir()
    assert RunFolder.open(tmp_path / "a" / "b") == folder


def test_a_second_run_into_the_same_folder_is_refused(tmp_path):
    RunFolder.create(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"already holds a run \(.*\)\. Choose another run\.dir"):
        RunFolder.create(tmp_path / "run")


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml", "summary.json"])
def test_parts_of_a_run_without_its_marker_are_not_mixed_with_a_new_one(tmp_path, name):
    (tmp_path / name).write_text("")
    with pytest.raises(ConfigError, match=name):
        RunFolder.create(tmp_path)


def test_an_existing_folder_with_other_things_is_fine(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder.create(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_of_runs_that_start_together_one_gets_the_folder(tmp_path):
    program = textwrap.dedent(
        """
        import sys
        from rlvr.errors import ConfigError
        from rlvr.tracking.run_folder import RunFolder
        sys.stdin.read()
        try:
            RunFolder.create(sys.argv[1])
            print("mine")
        except ConfigError as error:
            print("refused" if "already holds a run" in str(error) else error)
        """
    )
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", program, tmp_path / "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    for start in starts:  # all are up before the first one may go
        start.stdin.close()
    found = sorted(start.stdout.read().strip() for start in starts)
    for start in starts:
        start.wait()
        start.stdout.close()
    assert found == ["mine"] + ["refused"] * 5


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ConfigError, match="a file is in the way"):
            RunFolder.create(path)


def test_a_path_that_cannot_be_written_is_named():
    with pytest.raises(ConfigError, match=r"run\.dir=/proc/rlvr cannot be written"):
        RunFolder.create("/proc/rlvr")


def test_a_folder_that_is_no_run_is_not_opened(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        RunFolder.open(tmp_path)


def test_the_last_checkpoint_is_the_one_of_the_highest_step(tmp_path):
    folder = RunFolder.create(tmp_path)
    with pytest.raises(UserError, match="no checkpoint yet"):
        last_checkpoint(folder)
    for step in (2, 10, 9):
        save(folder, step)
    (folder.checkpoints / ".step_11.partial").mkdir()
    assert checkpoint_steps(folder) == [2, 9, 10]
    assert last_checkpoint(folder) == folder.checkpoint_path(10)
    assert resolve_checkpoint(tmp_path) == folder.checkpoint_path(10)
    assert resolve_checkpoint(folder.checkpoint_path(2)) == folder.checkpoint_path(2)


def test_a_damaged_last_checkpoint_is_reported_with_the_older_ones_that_are_whole(tmp_path):
    folder = RunFolder.create(tmp_path)
    for step in (1, 2, 3):
        save(folder, step)
    for step in (2, 3):
        (folder.checkpoint_path(step) / "model.safetensors").write_bytes(b"short")
    with pytest.raises(UserError) as caught:
        last_checkpoint(folder)
    assert "step_3 is damaged" in str(caught.value)
    assert str(caught.value).endswith(f"Older ones that are whole: {folder.checkpoint_path(1)}")


def test_a_checkpoint_whose_contents_changed_is_not_evaluated(tmp_path):
    folder = RunFolder.create(tmp_path)
    save(folder, 1)
    (folder.checkpoint_path(1) / "model.safetensors").write_bytes(b"WEIGHTS")
    with pytest.raises(UserError, match="has changed"):
        resolve_checkpoint(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        resolve_checkpoint(tmp_path / "nowhere")


def test_a_checkpoint_that_does_not_fit_is_refused_before_it_is_begun(tmp_path):
    folder = RunFolder.create(tmp_path)
    with pytest.raises(UserError, match="the checkpoint of step 4 needs"), folder.checkpoint(4, bytes_needed=2**60):
        pytest.fail("begun")
    assert list(folder.checkpoints.iterdir()) == []
