"""What goes wrong in a run that lives for weeks, done to real processes: each has its outcome."""

import contextlib
import signal
import subprocess

import psutil
import pytest

from easyvideor1.schema.errors import UserError
from easyvideor1.train.ray_learner import RankActor
from tests.train.policy_cases import family_at, group
from tests.train.ray_ranks import learner_on_two_ranks
from tests.train.run_process import small_run, started
from tests.train.test_real_run import composed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ENDS_WITHIN_S = 60.0
"""A run that cannot go on says so and ends."""


def test_dead_engines_are_replaced_and_the_run_is_the_same(sharp_model_path, toybox_dir, tmp_path):
    """First the process that holds the model, then the actor around it; then a polite signal."""
    overrides = small_run(
        sharp_model_path,
        toybox_dir,
        "train.steps=6",
        "rollout.deterministic=true",
        "tracking.samples_every=1",
    )
    with started(overrides, tmp_path / "undisturbed") as undisturbed:
        assert undisturbed.end() == 0

    with started(overrides, tmp_path / "disturbed") as run:
        run.until_step(1)
        (core,) = run.processes("VLLM::EngineCore")
        core.kill()
        run.until(lambda: "starting it anew (1 of 3 times)" in run.output)
        run.until_step(3)
        (actor,) = run.processes("ray::EngineActor")
        (orphan,) = run.processes("VLLM::EngineCore")
        actor.kill()
        run.until(lambda: "starting it anew (2 of 3 times)" in run.output)
        assert psutil.wait_procs([orphan], timeout=20)[1] == []
        assert run.end() == 0
        assert run.left_over() == []
    assert run.metric("rollout/engine_restarts")[-1] == 2.0
    for name in ("reward/mean", "learner/loss", "learner/grad_norm"):
        assert run.metric(name) == pytest.approx(undisturbed.metric(name), abs=1e-6)


def test_an_engine_that_keeps_dying_ends_the_run(sharp_model_path, toybox_dir, tmp_path):
    overrides = small_run(
        sharp_model_path, toybox_dir, "train.steps=50", "rollout.max_engine_restarts=0"
    )
    with started(overrides, tmp_path) as run:
        run.until_step(2)
        run.processes("VLLM::EngineCore")[0].kill()
        assert run.end(ENDS_WITHIN_S) == 2
        assert run.left_over() == []
    assert "engine: process 0 of 1 died during" in run.last_words
    assert "rollout.max_engine_restarts=0 is reached" in run.last_words
    assert "is whole; the same command goes on from there" in run.last_words


def test_a_dead_rank_ends_the_run_with_its_number(sharp_model_path, toybox_dir, tmp_path):
    overrides = small_run(sharp_model_path, toybox_dir, "train.steps=50", "learner.ranks=2")
    with started(overrides, tmp_path) as run:
        run.until_step(2)  # after which the first is saved
        run.processes("ray::RankActor")[0].kill()
        assert run.end(ENDS_WITHIN_S) == 2
        assert run.left_over() == []
    assert "learner: process" in run.last_words and "of 2 died during" in run.last_words
    assert "is whole; the same command goes on from there" in run.last_words


def test_a_polite_signal_saves_and_the_same_command_goes_on(sharp_model_path, toybox_dir, tmp_path):
    overrides = small_run(sharp_model_path, toybox_dir, "train.steps=4")
    unsaved = [*overrides, "train.save_every=100", "train.steps=200"]
    with started(unsaved, tmp_path) as run:
        run.until_step(2)
        run.popen.send_signal(signal.SIGTERM)
        assert run.end(ENDS_WITHIN_S) == 143
        assert run.left_over() == []
        done = run.steps()[-1]
        assert "SIGTERM: saving and ending" in run.output
        assert f"stopped by SIGTERM at step_{done:06d}; the same command goes on" in run.output
    assert [c.position.step for c in run.folder.checkpoints()] == [done]
    with started([*overrides, f"train.steps={done + 1}"], tmp_path) as again:
        assert again.end() == 0
    assert again.steps() == list(range(1, done + 2))


def test_a_full_disk_ends_the_run_and_freed_space_lets_it_go_on(
    sharp_model_path, toybox_dir, tmp_path
):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk])
    if mounted.returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        overrides = small_run(
            sharp_model_path, toybox_dir, "train.steps=200", "learner.keep_last=1"
        )
        with started(overrides, disk) as run:
            run.until_step(2)
            filler = disk / "filler"
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(b"\0" * 65_536)
            assert run.end(ENDS_WITHIN_S) == 2
            assert run.left_over() == []
        # Before a save, within it, or over the metrics of a step: whatever came first.
        reasons = ("free, a checkpoint needs", "cannot be written", "No space left")
        assert any(reason in run.last_words for reason in reasons)
        assert "is whole" in run.last_words or "checkpoints are whole" in run.last_words
        done = max(c.position.step for c in run.folder.checkpoints())
        (newest,) = [c for c in run.folder.checkpoints() if c.is_full]
        assert newest.position.step == done >= 1
        filler.unlink()
        with started([*overrides, f"train.steps={done + 1}"], disk) as again:
            assert again.end() == 0
        assert again.steps() == list(range(1, done + 2))
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_losses_that_are_not_finite_end_the_run_on_all_ranks(tiny_model_path, toybox_dir, tmp_path):
    config = composed(
        tiny_model_path, toybox_dir, tmp_path, "learner.ranks=2", "learner.max_skipped_updates=1"
    )
    family = family_at(tiny_model_path)
    sick = [
        *group(family, "text", (9, 9), advantage=float("nan")),
        *group(family, "other text", (3, 3)),
    ]
    logs = tmp_path / "logs"
    with learner_on_two_ranks(RankActor, config, logs) as learner:
        assert learner.update(sick)["learner/skipped_updates"] == 1
        healthy = learner.update(group(family, "text", (9, 9)))
        assert healthy["learner/skipped_updates"] == 1 and healthy["learner/grad_norm"] > 0
        learner.update(sick)
        with pytest.raises(UserError, match="2 updates in a row were skipped, the last because"):
            learner.update(sick)
    assert "update skipped: the loss is nan, at sample text" in "".join(
        path.read_text() for path in sorted(logs.glob("rank_*.log"))
    )


def test_a_clip_that_is_damaged_in_the_cache_is_decoded_anew(
    sharp_model_path, toybox_dir, tmp_path
):
    overrides = small_run(sharp_model_path, toybox_dir, "cache.check_reads=true")
    with started([*overrides, "train.steps=1"], tmp_path) as first:
        assert first.end() == 0
    damaged = 0
    for shard in (tmp_path / "cache" / "shards").rglob("*.arrow"):
        size = shard.stat().st_size
        with shard.open("r+b") as file:  # a byte of every clip, somewhere in its pixels
            for place in range(size // 10, size - size // 10, 5_000):
                file.seek(place)
                byte = file.read(1)
                file.seek(place)
                file.write(bytes([byte[0] ^ 1]))
                damaged += 1
    assert damaged > 30
    with started([*overrides, "train.steps=3"], tmp_path) as run:
        assert run.end() == 0
    assert run.steps() == [1, 2, 3]
    assert run.metric("cache/misses/rollout")[-1] > 0
    logs = "".join(path.read_text() for path in (run.folder.path / "logs").glob("*.log"))
    assert "is decoded anew" in logs
