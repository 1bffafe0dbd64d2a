"""The decoder process: its deadline, its death, and life after both."""

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

from easyvideor1.preprocess.config import DecodeConfig, Decoder
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.killable import KillableDecoder
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget
from tests.media import real_clip, video

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
    process, _ = decoder._started()
    threading.Timer(0.5, process.send_signal, [signal.SIGSEGV]).start()
    with pytest.raises(DecodeError, match="the decoder process was killed by SIGSEGV"):
        decoder.decode(video(hanging), BUDGET, rules)


def test_the_decoder_dies_with_its_parent(rules: FamilyRules, hanging: str) -> None:
    program = (
        "from easyvideor1.preprocess.killable import KillableDecoder\n"
        "from tests.preprocess.test_killable import BUDGET, CONFIG, video\n"
        "from easyvideor1.preprocess.rules import FamilyRules\n"
        f"rules = {rules!r}\n"
        "decoder = KillableDecoder(CONFIG)\n"
        "print(decoder._started()[0].pid, flush=True)\n"
        f"decoder.decode(video({hanging!r}), BUDGET, rules)\n"
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
