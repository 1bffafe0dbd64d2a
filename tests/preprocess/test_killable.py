"""The decoder process: its deadline, its memory, its death, and life after each."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from easyvideor1.preprocess.config import DecodeConfig, Decoder, Device
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.ffmpeg_messages import sort_messages
from easyvideor1.preprocess.killable import KillableDecoder
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.errors import UserError
from tests.media import real_clip, video, write_video

CONFIG = DecodeConfig(decoder=Decoder.pyav, deadline_s=60.0)
BUDGET = FrameBudget(max_frames=4)


@pytest.fixture(scope="module")
def decoder() -> Generator[KillableDecoder]:
    """One for all tests: whatever happens to its process, it starts another."""
    with KillableDecoder(replace(CONFIG)) as decoder:
        yield decoder


@pytest.fixture
def hanging(tmp_path: Path) -> str:
    """A pipe that nobody writes to: opening it waits for ever, within the decoder's library."""
    path = tmp_path / "hangs.mp4"
    os.mkfifo(path)
    return str(path)


def test_frames_are_those_of_a_decode_in_this_process(
    decoder: KillableDecoder, rules: FamilyRules
) -> None:
    media = video(real_clip("bikes.mp4"))
    here, there = decode(media, BUDGET, rules, CONFIG), decoder.decode(media, BUDGET, rules)
    assert np.array_equal(here.frames, there.frames)
    assert here.metadata == there.metadata


def test_errors_come_back_and_the_process_goes_on(
    decoder: KillableDecoder, rules: FamilyRules, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video" * 100)
    with pytest.raises(DecodeError, match=r"broken\.mp4"):
        decoder.decode(video(broken), BUDGET, rules)
    assert decoder.decode(video(real_clip("bikes.mp4")), BUDGET, rules).shape[0] == 4


def test_a_video_that_hangs_is_given_up_at_the_deadline(
    decoder: KillableDecoder, rules: FamilyRules, hanging: str
) -> None:
    decoder.decode(video(real_clip("bikes.mp4")), BUDGET, rules)  # started, outside the deadline
    decoder._config.deadline_s = 0.5
    started_s = time.monotonic()
    with pytest.raises(DecodeError, match=r"took longer than decode\.deadline_s=0\.5"):
        decoder.decode(video(hanging), BUDGET, rules)
    assert time.monotonic() - started_s < 5
    decoder._config.deadline_s = 60.0
    assert decoder.decode(video(real_clip("bikes.mp4")), BUDGET, rules).shape[0] == 4


def test_a_video_that_kills_its_decoder_is_an_error_of_that_video(
    decoder: KillableDecoder, rules: FamilyRules, hanging: str
) -> None:
    process = decoder._started().process
    threading.Timer(0.5, process.send_signal, [signal.SIGSEGV]).start()
    with pytest.raises(DecodeError, match="the decoder process was killed by SIGSEGV"):
        decoder.decode(video(hanging), BUDGET, rules)


def test_a_video_that_needs_too_much_memory_is_an_error_of_that_video(
    decoder: KillableDecoder, rules: FamilyRules, tmp_path: Path
) -> None:
    large = write_video(tmp_path / "4k.mp4", num_frames=2, height=2160, width=3840)
    decoder.close()
    decoder._config.memory_gb = 0.06
    try:
        with pytest.raises(DecodeError, match=r"needs more than decode\.memory_gb=0\.06"):
            decoder.decode(video(large), BUDGET, rules)
        process = decoder._started().process
        assert decoder.decode(video(real_clip("bikes.mp4")), BUDGET, rules).shape[0] == 4
        assert decoder._started().process is process
    finally:
        decoder._config.memory_gb = CONFIG.memory_gb
    assert decoder.decode(video(large), BUDGET, rules).shape[0] == 2


def test_frames_beyond_the_memory_limit_are_refused_before_they_are_decoded(
    decoder: KillableDecoder, rules: FamilyRules
) -> None:
    dense = FrameBudget(fps=100, max_frames=512, min_pixels=1_000_000, max_pixels=1_000_000)
    decoder._config.memory_gb = 0.5  # 250 frames of 3 MB are more
    try:
        with pytest.raises(DecodeError, match=r"needs more than decode\.memory_gb=0\.5"):
            decoder.decode(video(real_clip("bikes.mp4")), dense, rules)
    finally:
        decoder._config.memory_gb = CONFIG.memory_gb


def test_the_frames_outlive_the_decoder(decoder: KillableDecoder, rules: FamilyRules) -> None:
    media = video(real_clip("bikes.mp4"))
    first = decoder.decode(media, BUDGET, rules).frames[1:]
    kept = first.copy()
    other = FrameBudget(max_frames=4, max_pixels=30_000)
    assert decoder.decode(media, other, rules).shape != (4, *kept.shape[1:])
    decoder.close()
    assert np.array_equal(first, kept)


def test_the_process_is_replaced_after_so_many_media(
    decoder: KillableDecoder, rules: FamilyRules
) -> None:
    decoder.close()
    decoder._config.recycle_after = 2
    try:
        pids = []
        for _ in range(3):
            decoder.decode(video(real_clip("bikes.mp4")), BUDGET, rules)
            pids.append(decoder._started().process.pid)
    finally:
        decoder._config.recycle_after = CONFIG.recycle_after
    assert pids[0] == pids[1] != pids[2]
    assert not Path(f"/proc/{pids[0]}").exists()


@pytest.mark.usefixtures("torchcodec")
def test_a_gpu_that_is_not_there_is_a_mistake_of_the_user(rules: FamilyRules) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    config = DecodeConfig(device=Device.cuda)
    with (
        pytest.raises(UserError, match=r"decode\.device=cuda needs an NVIDIA GPU") as caught,
        KillableDecoder(config) as decoder,
    ):
        decoder.decode(video(real_clip("bikes.mp4")), BUDGET, rules)
    assert not isinstance(caught.value, DecodeError)


def test_ffmpegs_complaints_are_told_from_other_output() -> None:
    messages = sort_messages(
        "[h264 @ 0x55d0] error while decoding MB 6 1, bytestream -7\n"
        "    Last message repeated 2 times\n"
        "[h264 @ 0x55d0] mmco: unref short failure\n"
        "    Last message repeated 5 times\n"
        "Truncating packet of size 1027454 to 2219\n"
        "UserWarning: something else\n"
    )
    assert messages.count == 4
    assert messages.errors == (
        "h264: error while decoding MB 6 1, bytestream -7",
        "FFmpeg: Truncating packet of size 1027454 to 2219",
    )
    assert messages.other == "UserWarning: something else\n"


def test_a_decoder_that_died_in_between_is_replaced(
    decoder: KillableDecoder, rules: FamilyRules
) -> None:
    process = decoder._started().process
    process.kill()
    process.wait()
    assert decoder.decode(video(real_clip("bikes.mp4")), BUDGET, rules).shape[0] == 4


def test_the_decoder_dies_with_its_parent(rules: FamilyRules, hanging: str) -> None:
    program = (
        "from easyvideor1.preprocess.config import DecodeConfig, Decoder\n"
        "from easyvideor1.preprocess.killable import KillableDecoder\n"
        "from easyvideor1.preprocess.rules import FamilyRules\n"
        "from easyvideor1.schema.budget import FrameBudget\n"
        "from easyvideor1.schema.records import Media, MediaKind\n"
        "decoder = KillableDecoder(DecodeConfig(decoder=Decoder.pyav))\n"
        "print(decoder._started().process.pid, flush=True)\n"
        f"media = Media(kind=MediaKind.video, path={hanging!r})\n"
        f"decoder.decode(media, FrameBudget(), {rules!r})\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    for _ in range(100):
        if not Path(f"/proc/{child}").exists():
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the decoder outlived its parent")
