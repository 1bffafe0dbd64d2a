from pathlib import Path

import pytest

from easyvideor1.schema.files import new_file, new_folder


def test_a_new_file_appears_when_the_block_ends(tmp_path: Path):
    target = tmp_path / "sub" / "a.txt"
    with new_file(target) as draft:
        draft.write_text("done")
        assert not target.exists()
    assert target.read_text() == "done"
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path: Path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), new_file(target) as draft:
        draft.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_new_folder_appears_with_all_its_files(tmp_path: Path):
    target = tmp_path / "folder"
    with new_folder(target) as draft:
        (draft / "sub").mkdir()
        (draft / "sub" / "a.txt").write_text("a")
        assert not target.exists()
    assert (target / "sub" / "a.txt").read_text() == "a"
    assert list(tmp_path.iterdir()) == [target]


def test_a_failed_folder_vanishes(tmp_path: Path):
    with pytest.raises(RuntimeError), new_folder(tmp_path / "folder") as draft:
        (draft / "a.txt").write_text("a")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_process_made_meanwhile_stays(tmp_path: Path):
    target = tmp_path / "folder"
    with new_folder(target) as draft:
        (draft / "a.txt").write_text("ours")
        target.mkdir()
        (target / "a.txt").write_text("theirs")
    assert (target / "a.txt").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [target]
