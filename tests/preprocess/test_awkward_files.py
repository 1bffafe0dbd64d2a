"""Files as they occur in the wild: what becomes of each, with both decoders and in a real child.

Frames show their own number, so each case compares pictures with times and not indices with
themselves. What can be recovered is recovered and recorded; the rest is refused with a reason.
"""

import functools
import os
import random
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image
from qwen_vl_utils import fetch_image

from easyvideor1.preprocess.config import DecodeConfig, Decoder
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.killable import KillableDecoder
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import Convention, FrameBudget
from tests.media import X264, ffmpeg, image, numbers_in, video, write_numbered

BUDGET = FrameBudget(fps=2.0, max_frames=12, min_frames=4, max_pixels=40_000)
WITHOUT_B = ("-c:v", "libx264", "-preset", "ultrafast", "-g", "12", "-bf", "0", *X264[-2:])
X265 = ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params")
VP9 = ("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-g", "12")
KEPT = (*range(30), *range(30, 60, 5))
"""Numbers of the frames of a video that goes on at a fifth of its rate after the third second."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of a file that can be read. The defaults are those of 6 s at 10 frames a second."""

    frames: int = 12
    last_s: float = 5.9
    """Time of the last frame shown."""
    number: Callable[[float], int] = lambda tenths: round(tenths)
    """The number that is to be seen at a time given in tenths of a second."""
    size: tuple[int, int] = (96, 128)
    turned: int = 0
    """Quarters by which the picture is turned, counter-clockwise."""
    notes: tuple[str, ...] = ()
    """A part of each thing that is to be recorded; none is nothing."""
    tolerated: str = ""
    """A part of what some versions of FFmpeg say in vain."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Of a file that cannot be read: a part of the reason."""

    reason: str


def plain(folder: Path) -> Path:
    return write_numbered(folder / "plain.mp4")


def file_with(name: str, content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def encoded(name: str, *options: str, **settings) -> Callable[[Path], Path]:
    return lambda folder: write_numbered(folder / name, *options, **settings)


def remuxed(
    name: str, *options: str, before: tuple[str, ...] = (), source: tuple[str, ...] = X264
) -> Callable[[Path], Path]:
    """A copy of the packets of a plain clip."""

    def make(folder: Path) -> Path:
        plain = write_numbered(folder / "source.mp4", *source)
        ffmpeg(*before, "-i", str(plain), "-c", "copy", *options, str(folder / name))
        return folder / name

    return make


def packets_of(path: Path) -> list[av.Packet]:
    with av.open(str(path)) as container:
        return [packet for packet in container.demux(video=0) if packet.size]


def cut_off(name: str, *options: str) -> Callable[[Path], Path]:
    """A file that ends within the packet of frame 36, a key frame."""

    def make(folder: Path) -> Path:
        path = write_numbered(folder / name, *WITHOUT_B, *options)
        packet = packets_of(path)[36]
        assert packet.pos is not None
        path.write_bytes(path.read_bytes()[: packet.pos + packet.size // 2])
        return path

    return make


def damaged(name: str, frames: range, *options: str) -> Callable[[Path], Path]:
    """Random bytes in the place of some frames' packets."""

    def make(folder: Path) -> Path:
        path = write_numbered(folder / name, *(options or WITHOUT_B))
        packets = packets_of(path)
        content = bytearray(path.read_bytes())
        for number in frames:
            position, size = packets[number].pos, packets[number].size
            assert position is not None
            content[position : position + size] = random.Random(number).randbytes(size)
        path.write_bytes(content)
        return path

    return make


def changed(make: Callable[[Path], Path], old: bytes, new: bytes) -> Callable[[Path], Path]:
    def make_changed(folder: Path) -> Path:
        path = make(folder)
        content = path.read_bytes()
        assert content.count(old) == 1
        path.write_bytes(content.replace(old, new))
        return path

    return make_changed


def audio_only(folder: Path) -> Path:
    ffmpeg("-f", "lavfi", "-i", "sine=d=3", "-c:a", "aac", str(folder / "audio.mp4"))
    return folder / "audio.mp4"


def audio_with_cover(folder: Path) -> Path:
    cover, path = write_cover(folder), folder / "song.m4a"
    sound = ("-f", "lavfi", "-i", "sine=d=3", "-i", str(cover), "-map", "0", "-map", "1")
    ffmpeg(*sound, "-c:a", "aac", "-c:v", "png", "-disposition:v", "attached_pic", str(path))
    return path


def write_cover(folder: Path) -> Path:
    Image.new("RGB", (640, 480), "red").save(folder / "cover.png")
    return folder / "cover.png"


def video_with_cover(folder: Path) -> Path:
    """The larger cover picture comes before the video."""
    inputs = ("-i", str(write_cover(folder)), "-i", str(plain(folder)), "-map", "0", "-map", "1")
    ffmpeg(*inputs, "-c", "copy", "-disposition:v:0", "attached_pic", str(folder / "cover.mp4"))
    return folder / "cover.mp4"


def two_videos(folder: Path) -> Path:
    other = ("-f", "lavfi", "-i", "color=red:s=64x64:r=10:d=6")
    path = folder / "two.mp4"
    ffmpeg("-i", str(plain(folder)), *other, "-map", "0", "-map", "1", *X264, str(path))
    return path


def two_sizes(folder: Path) -> Path:
    """A transport stream whose frames become larger after the third second."""
    write_numbered(folder / "small.ts", *WITHOUT_B, count=30)
    write_numbered(folder / "large.ts", *WITHOUT_B, size=(192, 256), count=30)
    (folder / "parts.txt").write_text("file small.ts\nfile large.ts\n")
    parts = ("-f", "concat", "-i", str(folder / "parts.txt"))
    ffmpeg(*parts, "-c", "copy", str(folder / "sizes.ts"))
    return folder / "sizes.ts"


def begins_midway(folder: Path) -> Path:
    """Recorded from frame 5 on, of which nothing can be decoded before the key frame 12."""
    path = write_numbered(folder / "midway.ts", *WITHOUT_B)
    content, start = path.read_bytes(), packets_of(path)[5].pos
    assert start is not None
    path.write_bytes(content[: 3 * 188] + content[start:])  # the tables, then the frames
    return path


def joined(folder: Path) -> Path:
    """Two transport streams in one file, as `cat` joins them: the times begin again."""
    parts = [write_numbered(folder / f"{n}.ts", *WITHOUT_B, count=30) for n in range(2)]
    (folder / "joined.ts").write_bytes(b"".join(part.read_bytes() for part in parts))
    return folder / "joined.ts"


def foreign_tags(folder: Path) -> Path:
    tagged = encoded("tags.avi", "-c:v", "mpeg4", "-metadata", "title=UMLAUT")
    return changed(tagged, b"UMLAUT", b"\xfcml\xe4ut")(folder)


def linked(folder: Path) -> Path:
    (folder / "link.mp4").symlink_to(plain(folder))
    return folder / "link.mp4"


def dangling(folder: Path) -> Path:
    (folder / "dangling.mp4").symlink_to(folder / "nowhere.mp4")
    return folder / "dangling.mp4"


def half_written(folder: Path) -> Path:
    """As downloads leave it: the table says all, and zeros stand where nothing has arrived yet."""
    path = write_numbered(folder / "half.mp4", *WITHOUT_B, "-movflags", "+faststart")
    start, content = packets_of(path)[36].pos, path.read_bytes()
    assert start is not None
    path.write_bytes(content[:start] + bytes(len(content) - start))
    return path


def long_duration(folder: Path) -> Path:
    path = write_numbered(folder / "long.mkv")
    content = path.read_bytes()
    mark = content.index(b"\x44\x89\x88") + 3  # EBML: Duration, 8 bytes
    path.write_bytes(content[:mark] + struct.pack(">d", 60_000.0) + content[mark + 8 :])
    return path


def many_frames(folder: Path) -> Path:
    path = write_numbered(folder / "many.avi", "-c:v", "mjpeg")
    content = path.read_bytes()
    mark = content.index(b"strh") + 8 + 32  # AVI: length of the stream in frames
    path.write_bytes(content[:mark] + struct.pack("<I", 300) + content[mark + 4 :])
    return path


TS_JOIN = ("-fps_mode", "vfr", "-vf", "select='lt(n,30)+not(mod(n,5))'")
COUNTED = "gives no frame a time of its own: frames are counted, at"
FILES: dict[str, tuple[Callable[[Path], Path], Outcome | Refused]] = {
    "nothing unusual": (plain, Outcome()),
    # Cut off
    "no bytes": (file_with("empty.mp4", b""), Refused(reason="the file is empty")),
    "truncated mp4": (
        cut_off("cut.mp4", "-movflags", "+faststart"),
        Outcome(
            frames=7,
            last_s=3.5,
            notes=(
                "announces 60 frames, holds 37",
                "damaged frames left out: 1",
                "errors that FFmpeg reports",
            ),
        ),
    ),
    "truncated mp4 with its table at the end": (
        cut_off("cut_end.mp4"),
        Refused(reason="moov atom not found"),
    ),
    "truncated mkv": (
        cut_off("cut.mkv"),
        Outcome(
            frames=7,
            last_s=3.5,
            notes=("announces 6.00 s, its video ends", "errors that FFmpeg reports"),
        ),
    ),
    "truncated transport stream": (
        cut_off("cut.ts"),
        Outcome(frames=7, last_s=3.5),  # nothing tells that there was more
    ),
    "truncated fragmented mp4": (
        cut_off("cut_fragments.mp4", "-movflags", "frag_keyframe+empty_moov"),
        Outcome(
            frames=7,
            last_s=3.5,
            notes=(
                "announces 48 frames, holds 37",
                "damaged frames left out: 1",
                "errors that FFmpeg reports",
            ),
        ),
    ),
    "zeros after the middle": (
        half_written,
        Outcome(
            frames=7,
            last_s=3.5,
            notes=("of 60 frames in the file, 36 can be decoded", "errors that FFmpeg reports"),
        ),
    ),
    # Damaged or no video
    "garbage in the middle": (
        damaged("garbage.mp4", range(20, 24)),
        Outcome(
            number=lambda tenths: 19 if 19.5 < tenths < 23.5 else round(tenths),
            notes=(
                "sampled frames that cannot be decoded: 1, at 2.10 s",
                "errors that FFmpeg reports",
            ),
        ),
    ),
    "garbage at the beginning": (
        damaged("headless.mp4", range(1)),
        Outcome(
            number=lambda tenths: max(12, round(tenths)),
            notes=("sampled frames that cannot be decoded: 3", "errors that FFmpeg reports"),
        ),
    ),
    "garbage in most of it": (
        damaged("most.mp4", range(12, 59)),
        Refused(reason="more than half of the 12 sampled frames cannot be decoded"),
    ),
    "garbage everywhere": (
        damaged("all.mp4", range(60)),
        Refused(reason="no frame can be decoded"),
    ),
    "random bytes": (
        file_with("random.mp4", random.Random(0).randbytes(50_000)),
        Refused(reason="Invalid data found"),
    ),
    "a text": (file_with("text.mp4", b"no video " * 999), Refused(reason="Invalid data found")),
    "an error page": (
        file_with("page.mp4", b"<!DOCTYPE html><html><h1>404 Not Found</h1></html>\n"),
        Refused(reason="Invalid data found"),
    ),
    "only sound": (audio_only, Refused(reason="no video stream")),
    "sound with a cover picture": (
        audio_with_cover,
        Refused(reason="no video stream, only a cover picture"),
    ),
    # Numbers and times of frames
    "one frame": (encoded("one.mp4", count=1), Outcome(frames=1, last_s=0.0)),
    "one frame in mkv": (encoded("one.mkv", count=1), Outcome(frames=1, last_s=0.0)),
    "two frames": (encoded("two_frames.mp4", count=2), Outcome(frames=2, last_s=0.1)),
    "variable rate in mkv": (
        encoded("variable.mkv", *X264, *TS_JOIN),
        Outcome(
            frames=11,
            last_s=35 / 36 * 5.6,
            number=lambda tenths: max(n for n in KEPT if n <= tenths + 0.001),
            notes=("variable frame rate: frames follow after 0.1 to 0.5 s",),
        ),
    ),
    "variable rate in mp4": (
        encoded("variable.mp4", *X264, *TS_JOIN),
        Outcome(
            last_s=35 / 36 * 6.0,
            number=lambda tenths: max(n for n in KEPT if n <= tenths + 0.001),
            notes=("variable frame rate: frames follow after 0.1 to 0.5 s",),
        ),
    ),
    "29.97 frames a second in mkv": (
        encoded("ntsc.mkv", count=180, fps=30_000 / 1001),
        Outcome(last_s=179 * 1.001 / 30, number=lambda tenths: round(tenths * 3 / 1.001)),
    ),
    "an announced minute of which 6 s are there": (
        long_duration,
        Outcome(notes=("announces 60.00 s, its video ends after 6.00 s",)),
    ),
    "300 announced frames of which 60 are there": (
        many_frames,
        Outcome(notes=("announces 300 frames, holds 60",)),
    ),
    "a start at 100 s in mkv": (remuxed("late.mkv", "-output_ts_offset", "100"), Outcome()),
    "a start at 100 s in a transport stream": (
        remuxed("late.ts", "-output_ts_offset", "100"),
        Outcome(),
    ),
    "an edit list that begins between key frames": (
        remuxed("trimmed.mp4", before=("-ss", "2.5")),
        Outcome(frames=7, last_s=3.4, number=lambda tenths: 25 + round(tenths)),
    ),
    "times below zero in mp4, which are not to be shown": (
        remuxed("negative.mp4", "-output_ts_offset", "-3", "-avoid_negative_ts", "disabled"),
        Outcome(frames=6, last_s=2.9, number=lambda tenths: 30 + round(tenths)),
    ),
    "times below zero in mkv, which cannot hold them": (
        remuxed("negative.mkv", "-output_ts_offset", "-3", "-avoid_negative_ts", "disabled"),
        Outcome(notes=(COUNTED,)),
    ),
    "an hour": (
        encoded("hour.mp4", *X264, count=3600, fps=1.0, size=(48, 64)),
        Outcome(last_s=3599.0, number=lambda tenths: round(tenths / 10), size=(48, 64)),
    ),
    # Containers
    "transport stream without an index": (encoded("plain.ts"), Outcome()),
    "a transport stream that begins between key frames": (
        begins_midway,
        Outcome(
            frames=11,
            last_s=5.4,
            number=lambda tenths: max(12, 5 + round(tenths)),
            notes=(
                "sampled frames that cannot be decoded: 2, at 0.00, 0.50 s",
                "errors that FFmpeg reports",
            ),
        ),
    ),
    "joined transport streams": (
        joined,
        Outcome(
            number=lambda tenths: round(tenths) % 30,
            notes=("its times begin again midway: frames are counted, at 10 a second",),
        ),
    ),
    "fragmented mp4": (
        encoded("fragments.mp4", *X264, "-movflags", "frag_keyframe+empty_moov"),
        Outcome(),
    ),
    "AVI": (encoded("plain.avi", "-c:v", "mpeg4", "-g", "12"), Outcome()),
    "AVI with H.264": (encoded("h264.avi", *WITHOUT_B), Outcome(notes=(COUNTED,))),
    "AVI with B-frames": (
        encoded("b.avi", "-c:v", "mpeg4", "-g", "12", "-bf", "2"),
        Outcome(notes=(COUNTED,)),
    ),
    "MXF with B-frames": (
        encoded("b.mxf", *X264, fps=25),
        Outcome(
            frames=4,
            last_s=59 / 25,
            number=lambda tenths: round(tenths * 2.5),
            notes=(COUNTED,),
        ),
    ),
    "program stream": (
        encoded("plain.mpg", "-c:v", "mpeg2video", "-bf", "2", "-g", "12"),
        Outcome(notes=(COUNTED,)),
    ),
    "bare H.264": (
        encoded("bare.h264"),
        Outcome(
            frames=4,
            last_s=59 / 25,
            number=lambda tenths: round(tenths * 2.5),
            notes=(COUNTED + " 25 a second",),
        ),
    ),
    "Flash video": (encoded("plain.flv"), Outcome()),
    "motion JPEG": (encoded("plain.mov", "-c:v", "mjpeg"), Outcome()),
    "GIF": (encoded("plain.gif", "-f", "gif"), Outcome()),
    "tags in another encoding": (foreign_tags, Outcome()),
    "two videos": (two_videos, Outcome(notes=("has 2 video streams, of which number 0",))),
    "a cover picture": (video_with_cover, Outcome()),
    # Pictures
    "turned by 90 degrees": (
        remuxed("turned90.mp4", before=("-display_rotation", "90")),
        Outcome(size=(128, 96), turned=1),
    ),
    "turned by 180 degrees": (
        remuxed("turned180.mp4", before=("-display_rotation", "180")),
        Outcome(turned=2),
    ),
    "turned by 270 degrees": (
        remuxed("turned270.mp4", before=("-display_rotation", "270")),
        Outcome(size=(128, 96), turned=3),
    ),
    "pixels that are not square": (
        encoded("wide.mp4", *X264, "-vf", "setsar=2/1"),
        Outcome(notes=("its pixels are 2:1 wide",)),
    ),
    "odd height and width": (
        encoded("odd.webm", *VP9, "-pix_fmt", "yuv420p", size=(97, 131)),
        Outcome(size=(97, 131)),
    ),
    "alpha channel in VP9": (
        encoded("alpha.webm", *VP9, "-pix_fmt", "yuva420p"),
        Outcome(notes=("its alpha channel is not applied",)),
    ),
    "HEVC of 10 bits": (
        encoded("deep.mp4", *X265, "log-level=error:keyint=12", "-pix_fmt", "yuv420p10le"),
        Outcome(),
    ),
    "frames of two sizes": (two_sizes, Outcome(number=lambda tenths: round(tenths) % 30)),
    "4K": (
        encoded("4k.mp4", *X264, count=3, size=(2160, 3840)),
        Outcome(frames=3, last_s=0.2, size=(2160, 3840)),
    ),
    # Groups of pictures
    "open groups in H.264": (
        encoded(
            "open.mp4",
            *("-c:v", "libx264", "-pix_fmt", "yuv420p", "-x264-params"),
            "open-gop=1:keyint=12:min-keyint=12:bframes=5:b-pyramid=normal:scenecut=0",
        ),
        Outcome(),
    ),
    "open groups in HEVC in a transport stream": (
        encoded(
            "open.ts",
            *X265,
            "log-level=error:open-gop=1:keyint=12:min-keyint=12:bframes=4",
            *X264[-2:],
        ),
        Outcome(),
    ),
    "key frames that cannot be decoded alone": (
        encoded(
            "refresh.mp4",
            *("-c:v", "libx264", "-pix_fmt", "yuv420p", "-x264-params"),
            "intra-refresh=1:keyint=12:bframes=0",
        ),
        Outcome(tolerated="errors that FFmpeg reports"),
    ),
    # Names
    "a directory": (lambda folder: folder, Refused(reason="Is a directory")),
    "a missing file": (lambda folder: folder / "absent.mp4", Refused(reason="No such file")),
    "a link": (linked, Outcome()),
    "a link to nowhere": (dangling, Refused(reason="No such file")),
    "spaces, signs and Unicode in the name": (
        lambda folder: write_numbered(folder / "-ein Bär: 12:30 & 100%20 日本.mp4"),
        Outcome(),
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a name in the table, made once for both decoders."""

    @functools.cache
    def make(name: str) -> Path:
        return FILES[name][0](tmp_path_factory.mktemp("awkward"))

    return make


@pytest.fixture(scope="module", params=["torchcodec", "pyav"])
def decoder(request: pytest.FixtureRequest) -> Generator[KillableDecoder]:
    if request.param == "torchcodec":
        request.getfixturevalue("torchcodec")
    with KillableDecoder(DecodeConfig(decoder=Decoder(request.param))) as decoder:
        yield decoder


@pytest.mark.parametrize("name", FILES)
def test_each_awkward_file_has_its_outcome(
    name: str, made: Callable[[str], Path], decoder: KillableDecoder, rules: FamilyRules
) -> None:
    path, expected = made(name), FILES[name][1]
    if isinstance(expected, Refused):
        with pytest.raises(DecodeError) as caught:
            decoder.decode(video(path), BUDGET, rules)
        assert expected.reason in caught.value.reason
        assert caught.value.path == str(path)
        return
    clip = decoder.decode(video(path), BUDGET, rules)
    metadata = clip.metadata
    assert len(clip.frames) == expected.frames
    assert (metadata.height, metadata.width) == expected.size
    assert metadata.timestamps_s[0] == 0.0
    assert metadata.timestamps_s[-1] == pytest.approx(expected.last_s, abs=1e-3)
    upright = np.rot90(clip.frames, k=-expected.turned, axes=(2, 3))
    assert numbers_in(upright) == [expected.number(10 * time) for time in metadata.timestamps_s]
    assert list(metadata.frame_indices) == sorted(metadata.frame_indices)
    tolerated = expected.tolerated
    repairs = [text for text in metadata.repairs if not tolerated or tolerated not in text]
    assert len(repairs) == len(expected.notes), repairs
    for note, repair in zip(expected.notes, repairs, strict=True):
        assert note in repair


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_refused(
    decoder: KillableDecoder, rules: FamilyRules, tmp_path: Path
) -> None:
    path = plain(tmp_path)
    path.chmod(0)
    with pytest.raises(DecodeError, match="Permission denied"):
        decoder.decode(video(path), BUDGET, rules)


def test_a_file_that_makes_the_decoder_hang_is_refused_at_the_deadline(
    decoder: KillableDecoder, rules: FamilyRules, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "hangs.mp4")  # opening it waits for ever for somebody who writes
    decoder.decode(video(plain(tmp_path)), BUDGET, rules)  # started, outside the deadline
    decoder._config.deadline_s, deadline_s = 0.5, decoder._config.deadline_s
    with pytest.raises(DecodeError, match=r"took longer than decode\.deadline_s=0\.5"):
        decoder.decode(video(tmp_path / "hangs.mp4"), BUDGET, rules)
    decoder._config.deadline_s = deadline_s


QUARTERS = ((0, 85), (170, 255))
"""Grey levels of the quarters of the pictures below."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Of an image that can be read: the mean grey of its quarters, and what is recorded."""

    quarters: tuple = QUARTERS
    notes: tuple[str, ...] = ()


def quartered(dtype: type = np.uint8, scale: float = 1.0) -> np.ndarray:
    return np.kron(np.array(QUARTERS) * scale, np.ones((32, 32))).astype(dtype)


def grey(mode: str, name: str = "image.png", **options) -> Callable[[Path], Path]:
    return saved(lambda: Image.fromarray(quartered()).convert(mode), name, **options)


def saved(make: Callable[[], Image.Image], name: str, **options) -> Callable[[Path], Path]:
    def save(folder: Path) -> Path:
        make().save(folder / name, **options)
        return folder / name

    return save


def diagram(mode: str) -> Callable[[], Image.Image]:
    """Black all over; opaque only in the last quarter."""

    def make() -> Image.Image:
        alpha = Image.fromarray(np.where(quartered() == 255, 255, 0).astype(np.uint8))
        black = Image.new("L", alpha.size)
        return Image.merge("LA", (black, alpha)).convert(mode)

    return make


def turned(orientation: int, quarters: tuple) -> tuple[Callable[[Path], Path], Picture]:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return grey("RGB", exif=exif), Picture(quarters=quarters)


def cut_jpeg(folder: Path) -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
    path = saved(lambda: Image.fromarray(noise), "image.jpg")(folder)
    path.write_bytes(path.read_bytes()[:20_000])
    return path


def two_pictures(folder: Path) -> Path:
    first, second = (Image.fromarray(quartered()), Image.new("L", (64, 64)))
    first.save(folder / "two.gif", save_all=True, append_images=[second])
    return folder / "two.gif"


def transparent_palette(folder: Path) -> Path:
    return saved(lambda: grey_palette(), "palette.png", transparency=0)(folder)


def grey_palette() -> Image.Image:
    return Image.fromarray(quartered()).convert("P")


ON_WHITE = Picture(quarters=((255, 255), (255, 0)), notes=("transparent parts are laid on white",))
IMAGES: dict[str, tuple[Callable[[Path], Path], Picture | Refused]] = {
    "RGB": (grey("RGB"), Picture()),
    "1 bit": (grey("1"), Picture()),
    "grey": (grey("L"), Picture()),
    "JPEG": (grey("RGB", "image.jpg"), Picture()),
    "palette": (grey("P"), Picture()),
    "CMYK": (grey("CMYK", "image.tiff"), Picture()),
    "CMYK in JPEG": (grey("CMYK", "image.jpg"), Picture()),
    "grey with alpha": (saved(diagram("LA"), "image.png"), ON_WHITE),
    "RGB with alpha": (saved(diagram("RGBA"), "image.png"), ON_WHITE),
    "WebP with alpha": (saved(diagram("RGBA"), "image.webp", lossless=True), ON_WHITE),
    "palette with a transparent colour": (
        transparent_palette,
        Picture(quarters=((255, 85), (170, 255)), notes=("transparent parts are laid on white",)),
    ),
    "grey of 16 bits in PNG": (
        saved(lambda: Image.fromarray(quartered(np.uint16, 257)), "image.png"),
        Picture(notes=("grey values from 0 to 65535 are scaled to 8 bits",)),
    ),
    "grey of 16 bits in TIFF": (
        saved(lambda: Image.fromarray(quartered(np.uint16, 257)), "image.tiff"),
        Picture(notes=("grey values from 0 to 65535 are scaled to 8 bits",)),
    ),
    "grey of 32 bits": (
        saved(lambda: Image.fromarray(quartered(np.int32, 1000) - 5000), "image.tiff"),
        Picture(notes=("grey values from -5000 to 250000 are scaled to 8 bits",)),
    ),
    "floating point from 0 to 1": (
        saved(lambda: Image.fromarray(quartered(np.float32, 1 / 255)), "image.tiff"),
        Picture(notes=("grey values from 0 to 1 are scaled to 8 bits",)),
    ),
    "floating point of any range": (
        saved(lambda: Image.fromarray(quartered(np.float32, 0.2) - 1), "image.tiff"),
        Picture(notes=("grey values from -1 to 50 are scaled to 8 bits",)),
    ),
    "several pictures in a GIF": (
        two_pictures,
        Picture(notes=("has 2 frames, of which the first is shown",)),
    ),
    # By hand, from EXIF's table of where the first stored row and column are to be seen.
    "orientation 1": turned(1, ((0, 85), (170, 255))),
    "orientation 2": turned(2, ((85, 0), (255, 170))),
    "orientation 3": turned(3, ((255, 170), (85, 0))),
    "orientation 4": turned(4, ((170, 255), (0, 85))),
    "orientation 5": turned(5, ((0, 170), (85, 255))),
    "orientation 6": turned(6, ((170, 0), (255, 85))),
    "orientation 7": turned(7, ((255, 85), (170, 0))),
    "orientation 8": turned(8, ((85, 255), (0, 170))),
    "truncated JPEG": (cut_jpeg, Refused(reason="image file is truncated")),
    "decompression bomb": (
        saved(lambda: Image.new("1", (14_000, 14_000)), "bomb.png"),
        Refused(reason="could be decompression bomb"),
    ),
    "a line": (
        saved(lambda: Image.new("RGB", (1, 300)), "line.png"),
        Refused(reason="aspect ratio"),
    ),
    "an error page as an image": (
        file_with("page.jpg", b"<!DOCTYPE html><html><h1>404 Not Found</h1></html>"),
        Refused(reason="cannot identify image file"),
    ),
    "an image without bytes": (
        file_with("empty.png", b""),
        Refused(reason="cannot identify image file"),
    ),
    "a video as an image": (plain, Refused(reason="cannot identify image file")),
    "a directory as an image": (lambda folder: folder, Refused(reason="Is a directory")),
    "a missing image": (lambda folder: folder / "no.png", Refused(reason="No such file")),
}


@pytest.mark.parametrize("convention", Convention)
@pytest.mark.parametrize("name", IMAGES)
def test_each_awkward_image_has_its_outcome(
    name: str, convention: Convention, rules: FamilyRules, tmp_path: Path
) -> None:
    make, expected = IMAGES[name]
    path = make(tmp_path)
    budget = FrameBudget(max_pixels=40_000, convention=convention)
    if isinstance(expected, Refused):
        with pytest.raises(DecodeError) as caught:
            decode(image(path), budget, rules, DecodeConfig())
        assert expected.reason in caught.value.reason
        return
    clip = decode(image(path), budget, rules, DecodeConfig())
    assert clip.shape == (1, 3, 64, 64)
    # Away from the edges, where resizing and JPEG blur.
    quarters = clip.frames[0].reshape(3, 2, 32, 2, 32)[:, :, 8:24, :, 8:24].mean(axis=(2, 4))
    assert np.abs(quarters - np.array(expected.quarters)).max() < 3
    assert len(clip.metadata.repairs) == len(expected.notes), clip.metadata.repairs
    for note, repair in zip(expected.notes, clip.metadata.repairs, strict=True):
        assert note in repair


def test_a_diagram_is_laid_on_white_as_qwen_vl_utils_does(
    rules: FamilyRules, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (64, 96, 4), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    path = str(tmp_path / "image.png")
    request: dict = {"image": path, "min_pixels": 4096, "max_pixels": 40_000}
    expected = fetch_image(request, image_patch_size=rules.patch_size)
    budget = FrameBudget(min_pixels=4096, max_pixels=40_000, convention=Convention.qwen_vl_utils)
    clip = decode(image(path), budget, rules, DecodeConfig())
    assert np.array_equal(clip.frames[0].transpose(1, 2, 0), np.asarray(expected))


def test_the_tables_list_at_least_ninety_files() -> None:
    assert len(FILES) + len(IMAGES) >= 90
