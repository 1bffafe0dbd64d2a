"""The child of `rendering`: draws one SVG after another, as PNG, until its parent is gone.

Run by path, so that it imports resvg and nothing of ours. A drawing can take any time and memory
(and a library may give up on it by ending its process): each gets its own share of processor time,
beyond which the kernel ends this process.
"""

import json
import resource
import struct
import sys

SECONDS = 1
"""Processor time of one drawing, and up to one more: the kernel counts whole seconds."""
MEMORY_BYTES = 2 << 30


def main() -> None:
    """Answer requests: the length in 4 bytes, then JSON {"svg", "fonts"}.

    A reply is the length, then b"+" and a PNG or b"-" and a reason.
    """
    import resvg_py

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while head := source.read(4):
        request = json.loads(source.read(*struct.unpack("<I", head)))
        used = resource.getrusage(resource.RUSAGE_SELF)
        until = int(used.ru_utime + used.ru_stime) + 1 + SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
        try:
            reply = b"+" + resvg_py.svg_to_bytes(
                svg_string=request["svg"],
                background="#ffffff",
                skip_system_fonts=not request["fonts"],
            )
        # A panic of the library is no Exception.
        except BaseException as error:
            reply = b"-" + str(error).encode()[:200]
        sink.write(struct.pack("<I", len(reply)) + reply)
        sink.flush()


if __name__ == "__main__":
    main()
