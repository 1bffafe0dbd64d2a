"""The decoder is chosen in the open: by name, or by what loads, and then said."""

import logging

import pytest

from easyvideor1.preprocess import decoders
from easyvideor1.preprocess.config import Decoder
from easyvideor1.preprocess.decoders import resolve_decoder
from easyvideor1.schema.errors import UserError


@pytest.fixture
def no_ffmpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "torchcodec_problem", lambda: "libavutil.so is missing")
    decoders._say_pyav.cache_clear()


@pytest.mark.usefixtures("torchcodec")
def test_auto_takes_torchcodec_where_it_loads() -> None:
    assert resolve_decoder(Decoder.auto) == "torchcodec"


@pytest.mark.usefixtures("no_ffmpeg")
def test_auto_says_once_that_it_takes_pyav(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert [resolve_decoder(Decoder.auto) for _ in range(3)] == ["pyav"] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "decoding with PyAV, because torchcodec does not load: libavutil.so is missing"
    ]


@pytest.mark.usefixtures("no_ffmpeg")
def test_torchcodec_by_name_is_never_replaced() -> None:
    with pytest.raises(UserError, match=r"does not load: libavutil\.so is missing; install FFmpeg"):
        resolve_decoder(Decoder.torchcodec)
