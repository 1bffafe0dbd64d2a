"""What FFmpeg writes about damage: it covers up what it can, and says so only on standard error."""

import re
from dataclasses import dataclass

_LINE = re.compile(r"\[(?P<component>[^\]]+) @ 0x[0-9a-f]+\] (?P<text>.*)")
_BARE_LINE = re.compile(r"(?P<component>)(?P<text>Truncating packet of size .*)")
_REPEATED = re.compile(r"\s*Last message repeated (\d+) times")

_HARMLESS = re.compile(
    # Said of sound files when decoding begins in the middle.
    "mmco: unref short failure|number of reference frames|Missing reference picture"
    # Said of sound files with a cover picture.
    "|timescale not set"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Messages:
    """Example: Messages(errors=("h264: error while decoding MB 6 1",), count=3, other="")."""

    errors: tuple[str, ...]
    """Each text once."""
    count: int
    """Of errors, repeated ones included."""
    other: str
    """Lines that are not FFmpeg's."""

    def note(self) -> str:
        """The errors in a sentence."""
        return f"errors that FFmpeg reports: {self.count}, the first: {self.errors[0]}"


def sort_messages(text: str) -> Messages:
    """Tell FFmpeg's complaints about damage from its harmless ones and from other output."""
    errors: dict[str, None] = {}
    count, other, was_error = 0, [], False
    for line in text.splitlines(keepends=True):
        if message := _LINE.match(line) or _BARE_LINE.match(line):
            was_error = not _HARMLESS.search(message["text"])
            if was_error:
                errors[f"{message['component'] or 'FFmpeg'}: {message['text'].strip()}"] = None
                count += 1
        elif repeated := _REPEATED.match(line):
            count += int(repeated[1]) * was_error
        else:
            other.append(line)
    return Messages(errors=tuple(errors), count=count, other="".join(other))
