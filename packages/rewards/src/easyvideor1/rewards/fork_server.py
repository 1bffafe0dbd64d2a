"""A fork server of the rewards' own: worker processes with what tasks import, within milliseconds.

`multiprocessing` has one fork server per process and one list of modules for it, which an engine
may have filled with vLLM; ours runs beside it. Used by `workers`.
"""

import fcntl
import io
import os
import signal
from collections.abc import Sequence
from multiprocessing import (
    connection,
    context,
    forkserver,
    popen_forkserver,
    process,
    reduction,
    spawn,
    util,
)
from multiprocessing.context import BaseContext
from typing import Any

_SERVER = forkserver.ForkServer()


def fork_context(preload: Sequence[str]) -> BaseContext:
    """A context whose processes are forked from a server that has imported the modules.

    The server starts with the first process and ends with this one.
    """
    _SERVER.set_forkserver_preload(list(preload))
    return _Context()


def end_with_parent() -> None:
    """Have the kernel end this worker when the process that uses it is gone, however it ended.

    Deadlines are kept there, so that a worker that computes for ever would otherwise stay. No
    thread could do it: a computation in C may never let another one run.
    """
    parent = process.parent_process()
    assert parent is not None
    pipe = parent.sentinel  # the other end closes with that process
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if connection.wait([pipe], timeout=0):  # it was gone before the signal was asked for
        os._exit(1)


class _Popen(popen_forkserver.Popen):
    """As its base, which always asks the server of `multiprocessing`."""

    _fds: list[int]

    def _launch(self, process_obj: Any) -> None:
        buffer = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            reduction.dump(spawn.get_preparation_data(process_obj._name), buffer)
            reduction.dump(process_obj, buffer)
        finally:
            context.set_spawning_popen(None)
        self.sentinel, write_end = _SERVER.connect_to_new_process(self._fds)
        # While the duplicate is open, the child knows that this process lives.
        alive = os.dup(write_end)
        self.finalizer = util.Finalize(self, _close, (alive, self.sentinel))
        with open(write_end, "wb", closefd=True) as pipe:
            pipe.write(buffer.getbuffer())
        self.pid = forkserver.read_signed(self.sentinel)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class _Process(process.BaseProcess):
    _start_method = "forkserver"

    @staticmethod
    def _Popen(process_obj: Any) -> _Popen:
        return _Popen(process_obj)


class _Context(BaseContext):
    _name = "forkserver"
    Process = _Process
