"""Starts Ray for the length of a job, unless it runs already: our own on loopback, or a cluster.

A Ray we did not start is left running. One that we started ends with its driver, however that ends:
`session_guard` sees to what a killed one leaves. Imports ray only inside.
"""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from easyvideor1.preprocess import session_guard
from easyvideor1.preprocess.config import RayConfig
from easyvideor1.preprocess.process_identity import ProcessIdentity
from easyvideor1.schema import environment

OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""Frames go from workers to the cache, never through Ray."""
FOLDERS = Path("/tmp")
"""Of our own Rays. Short, because Ray puts Unix sockets below and their paths are limited to 107
bytes."""
_PREFIX = "evr-ray-"
_OWNER_FILE = "owner.json"
"""In each of them: the driver that it ends with."""


@contextmanager
def ray_session(
    config: RayConfig,
    *,
    num_cpus: int,
    num_gpus: int | None = 0,
    object_store_bytes: int = OBJECT_STORE_BYTES,
) -> Generator[None]:
    """Ray for the length of the block.

    Args:
        config: the cluster to join; without an address, one is started on this machine.
        num_cpus: of the Ray we start.
        num_gpus: of the Ray we start; None is all of this machine.
        object_store_bytes: shared memory of the Ray we start.
    """
    environment.prepare()
    if config.address is None:
        environment.prepare_local_ray()
    import ray

    if ray.is_initialized():
        yield
        return
    if config.address is not None:
        ray.init(
            address=config.address,
            log_to_driver=False,
            runtime_env={"env_vars": environment.worker_environment()},
        )
        try:
            yield
        finally:
            ray.shutdown()
        return
    remove_leftovers()
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=FOLDERS)
    (Path(folder) / _OWNER_FILE).write_text(ProcessIdentity.current().as_json())
    try:
        with _guarded(folder):
            try:
                ray.init(
                    address="local",
                    num_cpus=num_cpus,
                    num_gpus=num_gpus,
                    object_store_memory=object_store_bytes,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    _node_ip_address="127.0.0.1",
                    _temp_dir=folder,
                )
                yield
            finally:
                ray.shutdown()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _guarded(folder: str) -> Generator[None]:
    """Processes started in the block end soon after this one, if it is killed in there."""
    command = [sys.executable, "-I", "-S", session_guard.__file__, folder, str(os.getpid())]
    # Not of our group: an interrupt from the keyboard must not reach it.
    guard = subprocess.Popen(command, start_new_session=True)
    os.environ[session_guard.VARIABLE] = folder
    try:
        yield
    finally:
        del os.environ[session_guard.VARIABLE]
        guard.kill()
        guard.wait()


def remove_leftovers() -> int:
    """Delete the folders of our own Rays that ended together with their guard; returns how many."""
    leftovers = [folder for folder in FOLDERS.glob(f"{_PREFIX}*") if _is_leftover(folder)]
    for folder in leftovers:
        shutil.rmtree(folder, ignore_errors=True)
    return len(leftovers)


def _is_leftover(folder: Path) -> bool:
    try:
        if folder.stat().st_uid != os.getuid():
            return False
        owner = ProcessIdentity.from_json((folder / _OWNER_FILE).read_bytes())
    except OSError:  # just made, or not ours
        return False
    return owner is not None and owner.has_ended()
