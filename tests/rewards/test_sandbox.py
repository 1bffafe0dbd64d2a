"""Programs that try to get out of the sandbox, to fake their score, or to take the scorer down.

Every attack is bounded by itself and aims at loopback and at files of the test, so that an escape
would harm nothing. A host that cannot isolate programs fails these tests.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from easyvideor1.rewards import RewardConfig, reward, score_many
from easyvideor1.rewards.config import CodeConfig
from easyvideor1.rewards.sandbox import Limits, Outcome, check_host, executor, run_stdio
from easyvideor1.rewards.sandbox.inside import kernel, syscalls
from easyvideor1.schema.records import ProblemType, Sample, Score, ScoreStatus

LIMITS = Limits(wall_s=20, cpu_s=2)
"""The clock is generous, for a busy machine; attacks on time set their own."""

SECRET = "hunter2-of-the-test"


# What is attacked.


@dataclass
class Targets:
    """What a program might reach outside, and whether it did."""

    folder: Path
    sockets: dict[str, socket.socket]
    abstract: str
    before: dict[str, tuple[int, int, str]]

    def as_json(self) -> str:
        """For the program, which knows where to aim."""
        return json.dumps({
            "folder": str(self.folder),
            "secret": str(self.folder / "secret.txt"),
            "tcp": self.sockets["tcp"].getsockname()[1],
            "udp": self.sockets["udp"].getsockname()[1],
            "unix": str(self.folder / "stream.sock"),
            "unix_datagram": str(self.folder / "datagram.sock"),
            "abstract": self.abstract,
            "source": executor.__file__,
            "site_packages": pytest.__file__,
            "server": server_pid(),
            "scorer": os.getpid(),
        })  # fmt: skip

    def state(self) -> dict[str, tuple[int, int, str]]:
        """Mode, modification time and content of each file in the folder."""
        return {
            path.name: (
                path.lstat().st_mode,
                path.lstat().st_mtime_ns,
                path.read_text() if path.is_file() else "",
            )
            for path in self.folder.iterdir()
        }

    def assert_untouched(self) -> None:
        assert self.state() == self.before
        for name in ("tcp", "unix", "abstract"):
            with pytest.raises(BlockingIOError):
                self.sockets[name].accept()
        for name in ("udp", "unix_datagram", "abstract_datagram"):
            with pytest.raises(BlockingIOError):
                self.sockets[name].recv(1)


@pytest.fixture
def targets(tmp_path: Path) -> Generator[Targets]:
    (tmp_path / "secret.txt").write_text(SECRET)
    abstract = f"\0evr-test-{os.getpid()}"
    kinds = {
        "tcp": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "udp": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "unix": (socket.AF_UNIX, socket.SOCK_STREAM, str(tmp_path / "stream.sock")),
        "unix_datagram": (socket.AF_UNIX, socket.SOCK_DGRAM, str(tmp_path / "datagram.sock")),
        "abstract": (socket.AF_UNIX, socket.SOCK_STREAM, abstract),
        "abstract_datagram": (socket.AF_UNIX, socket.SOCK_DGRAM, abstract + "-datagram"),
    }
    sockets = {}
    for name, (family, kind, address) in kinds.items():
        sockets[name] = socket.socket(family, kind)
        sockets[name].bind(address)
        sockets[name].setblocking(False)
        if kind == socket.SOCK_STREAM:
            sockets[name].listen()
    made = Targets(tmp_path, sockets, abstract, {})
    made.before = made.state()
    yield made
    for each in sockets.values():
        each.close()


def server_pid() -> int:
    """The fork server, or what started it."""
    check_host()
    assert executor._current is not None
    return executor._current._process.pid


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children] + [
        grandchild for child in children for grandchild in descendants(int(child))
    ]


ADD = Sample(
    id="add",
    problem="Add.",
    answer={"entry": "add", "tests": ["assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'"]},
    problem_type=ProblemType.code,
)


@pytest.fixture(autouse=True)
def the_scorer_stays_healthy() -> Generator[None]:
    """After every test the same server is there, nothing runs in it, and it scores."""
    server = server_pid()
    alone = descendants(server)
    assert len(alone) <= 1  # the server is a child of the process that made its pid namespace
    yield
    assert score_of("def add(a, b):\n    return a + b") == 1.0
    assert server_pid() == server, "the server was lost"
    assert descendants(server) == alone
    assert executor._current is not None
    assert os.listdir(executor._current.scratch) == []


def score_of(program: str, sample: Sample = ADD, **options: object) -> float:
    """Accuracy of a program; its status must be `ok`."""
    score = scored(program, sample, **options)
    assert score.status is ScoreStatus.ok, score.detail
    return score.parts["accuracy"]


def scored(program: str, sample: Sample = ADD, **options: object) -> Score:
    config = RewardConfig(deadline_s=10.0, code=CodeConfig(**options))
    return reward(sample, f"<answer>\n{textwrap.dedent(program)}\n</answer>", config)


# Attempts that must be refused. Each prints one line per attempt.

PRELUDE = """
import ctypes, errno, json, os, sys, time
target = json.load(sys.stdin)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

def system_call(number, *arguments):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result

def attempt(name, function, *arguments, **keywords):
    try:
        result = function(*arguments, **keywords)
    except (OSError, ImportError, RuntimeError, ValueError, EOFError) as error:
        print("refused", name, type(error).__name__, error)
    else:
        print("ESCAPED", name, repr(result)[:200])
"""

REFUSED = {
    "tcp_to_loopback": """
        import socket
        attempt("connect", socket.create_connection, ("127.0.0.1", target["tcp"]), 1)
        attempt("listen", socket.create_server, ("127.0.0.1", 0))
        attempt("ipv6", socket.socket, socket.AF_INET6, socket.SOCK_STREAM)
    """,
    "udp_to_loopback": """
        import socket
        def send():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
                return out.sendto(b"x", ("127.0.0.1", target["udp"]))
        attempt("datagram", send)
        attempt("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
        attempt("packet", socket.socket, socket.AF_PACKET, socket.SOCK_RAW)
        attempt("netlink", socket.socket, socket.AF_NETLINK, socket.SOCK_RAW)
        attempt("vsock", socket.socket, socket.AF_VSOCK, socket.SOCK_STREAM)
    """,
    "dns": """
        import socket
        attempt("name", socket.gethostbyname, "evr-test.invalid")
        attempt("address", socket.getaddrinfo, "localhost", 80)
        attempt("reverse", socket.gethostbyaddr, "127.0.0.1")
    """,
    "http": """
        import urllib.request
        attempt("get", urllib.request.urlopen, f"http://127.0.0.1:{target['tcp']}/", timeout=1)
        attempt("file url", urllib.request.urlopen, "file://" + target["secret"])
    """,
    "unix_socket": """
        import socket
        def connect(address, kind):
            with socket.socket(socket.AF_UNIX, kind) as out:
                out.connect(address)
                return out.send(b"x")
        attempt("stream", connect, target["unix"], socket.SOCK_STREAM)
        attempt("datagram", connect, target["unix_datagram"], socket.SOCK_DGRAM)
        attempt("abstract", connect, target["abstract"], socket.SOCK_STREAM)
    """,
    "datagram_from_a_socket_pair": """
        import socket
        def pair(kind, address):
            left, right = socket.socketpair(socket.AF_UNIX, kind)
            return left.sendto(b"x", address)
        attempt("path", pair, socket.SOCK_DGRAM, target["unix_datagram"])
        attempt("abstract", pair, socket.SOCK_DGRAM, target["abstract"] + "-datagram")
        attempt("stream", pair, socket.SOCK_STREAM, target["unix_datagram"])
        left, right = socket.socketpair()
        attempt("sendmsg", left.sendmsg, [b"x"], [], 0, target["unix_datagram"])
        attempt("connect", left.connect, target["unix"])
        attempt("pass a descriptor", socket.send_fds, left, [b"x"], [0])
        attempt("out of band", left.send, b"x", socket.MSG_OOB)
    """,
    "read_a_secret": """
        secret = target["secret"]
        attempt("open", open, secret)
        attempt("os.open", os.open, secret, os.O_RDONLY)
        attempt("from the root folder of a process", open, "/proc/self/root" + secret)
        attempt("by a relative path", open, os.path.relpath(secret, os.getcwd()))
        descriptor = os.open("/", os.O_PATH)
        attempt("from a folder", os.open, secret[1:], os.O_RDONLY, dir_fd=descriptor)
        path = os.open(secret, os.O_PATH)
        attempt("again by its descriptor", open, f"/proc/self/fd/{path}")
        attempt("read a path descriptor", os.read, path, 9)
        attempt("list", os.listdir, target["folder"])
        attempt("passwords", open, "/etc/passwd")
        attempt("home", os.listdir, os.path.expanduser("~root"))
        how = ctypes.create_string_buffer(24)
        attempt("openat2", system_call, 437, -100, secret.encode(), how, 24)
    """,
    "write_outside": """
        folder, secret = target["folder"], target["secret"]
        for where in (folder, "/tmp", "/dev/shm", "/var/tmp", os.path.dirname(os.getcwd())):
            attempt(f"make a file in {where}", open, where + "/evr-made-by-the-attack", "x")
            attempt(f"make a folder in {where}", os.mkdir, where + "/evr-made-by-the-attack")
        attempt("append", open, secret, "a")
        attempt("write", os.open, secret, os.O_WRONLY)
        attempt("empty by opening", os.open, secret, os.O_RDONLY | os.O_TRUNC)
        attempt("empty by path", os.truncate, secret, 0)
        attempt("remove", os.remove, secret)
        attempt("rename", os.rename, secret, secret + ".old")
        attempt("rename into the scratch folder", os.rename, secret, "mine")
        open("own", "w").close()
        attempt("rename out of the scratch folder", os.rename, "own", secret)
        attempt("unnamed file", os.open, folder, os.O_TMPFILE | os.O_RDWR)
        attempt("python's library", open, os.__file__, "a")
    """,
    "change_a_file_outside": """
        secret = target["secret"]
        attempt("mode", os.chmod, secret, 0o777)
        attempt("owner", os.chown, secret, 12345, 12345)
        attempt("times", os.utime, secret, (0, 0))
        attempt("attribute", os.setxattr, secret, "user.attack", b"x")
        attempt("attribute by descriptor", os.setxattr, os.open(secret, os.O_PATH), "user.a", b"x")
        attempt("lock", __import__("fcntl").flock, os.open(os.__file__, os.O_RDONLY), 2)
    """,
    "symlink_escape": """
        secret = target["secret"]
        attempt("make", os.symlink, secret, "link")
        attempt("read", open, "link")
        attempt("folder", os.symlink, target["folder"], "folder")
        attempt("descend", os.listdir, "folder")
    """,
    "hard_link_escape": """
        secret = target["secret"]
        attempt("bring in", os.link, secret, "hard")
        attempt("read", open, "hard")
        open("own", "w").write("x")
        attempt("take out", os.link, "own", target["folder"] + "/hard")
        attempt("bind", _libc.mount and system_call, 165, b"/", b".", None, 4096, None)
    """,
    "our_source": """
        attempt("source", open, target["source"])
        sys.path.append(target["source"].split("/easyvideor1/")[0])
        sys.path.append(os.path.dirname(os.path.dirname(target["site_packages"])))
        attempt("import easyvideor1", __import__, "easyvideor1.rewards")
        attempt("import numpy", __import__, "numpy")
        attempt("site-packages", open, target["site_packages"])
        attempt("the module in memory", __import__, "inside.server")
    """,
    "proc": """
        for who in (os.getppid(), target["server"], target["scorer"], 1, "self", "thread-self"):
            for what in ("environ", "mem", "maps", "cmdline", "status", "stack", "exe"):
                attempt(f"{who}/{what}", open, f"/proc/{who}/{what}", "rb")
            if who not in ("self", "thread-self"):
                for number in range(12):
                    attempt(f"{who}/fd", open, f"/proc/{who}/fd/{number}", "rb")
            attempt(f"{who} through its root", open, f"/proc/{who}/root" + target["secret"])
            attempt(f"list {who}", os.listdir, f"/proc/{who}")
        attempt("list", os.listdir, "/proc")
        attempt("kernel", open, "/proc/sys/kernel/core_pattern", "w")
        attempt("system", open, "/proc/sysrq-trigger", "w")
        attempt("user ids", open, "/proc/self/uid_map", "w")
        attempt("memory killer", open, "/proc/self/oom_score_adj", "w")
    """,
    "signals": """
        import fcntl, signal
        for pid in (os.getppid(), target["server"], target["scorer"], 1, 0, -1, -os.getpgid(0)):
            attempt(f"kill {pid}", os.kill, pid, 0)
        attempt("thread of another", system_call, 234, target["scorer"], target["scorer"], 0)
        attempt("thread without its process", system_call, 200, target["scorer"], 0)
        attempt("queue", system_call, 129, target["scorer"], 0, ctypes.create_string_buffer(128))
        attempt("pidfd", system_call, 434, target["scorer"], 0)
        reading, writing = os.pipe()
        attempt("owner of a pipe", fcntl.fcntl, reading, fcntl.F_SETOWN, target["scorer"])
        attempt("signal of a pipe", fcntl.fcntl, reading, 10, signal.SIGCONT)
        attempt("by ioctl", fcntl.ioctl, reading, 0x8901, ctypes.create_string_buffer(4))
        event, timer = ctypes.create_string_buffer(64), ctypes.create_string_buffer(8)
        attempt("timer", system_call, 222, 0, event, timer)
        attempt("type into a terminal", fcntl.ioctl, 0, 0x5412, b"x")
    """,
    "fork_bomb": """
        import multiprocessing, subprocess
        for number in range(3):
            attempt("fork", os.fork)
        attempt("vfork", system_call, 58)
        attempt("clone", system_call, 56, 17, 0, 0, 0, 0)
        attempt("clone with a shared memory", system_call, 56, 0x100 | 17, 0, 0, 0, 0)
        attempt("clone3", system_call, 435, ctypes.create_string_buffer(88), 88)
        attempt("subprocess", subprocess.run, ["/bin/true"])
        assert os.system("true") != 0
        attempt("spawn", os.posix_spawn, "/bin/true", ["true"], {})
        attempt("exec", os.execv, sys.executable, ["python"])
        attempt("exec by descriptor", system_call, 322, -100, b"/bin/true", None, None, 0)
        attempt("multiprocessing", multiprocessing.get_context("fork").Process(target=print).start)
        attempt("terminal", os.openpty)
    """,
    "another_user": """
        for function, arguments in (
            (os.setuid, (0,)), (os.setgid, (0,)), (os.setresuid, (0, 0, 0)), (os.setgroups, ([0],)),
            (os.setreuid, (12345, 12345)), (os.setsid, ()), (os.setpgid, (0, 0)), (os.nice, (-1,)),
        ):
            attempt(function.__name__, function, *arguments)
        zero = ctypes.create_string_buffer(24)
        attempt("capset", system_call, 126, zero, zero)
        for option in (1, 4, 8, 36, 38, 1499557217):
            attempt(f"prctl {option}", system_call, 157, option, 0, 0, 0, 0)
    """,
    "system_calls_of_administrators": """
        zero = ctypes.create_string_buffer(256)
        for name, number in {
            "ptrace": 101, "mount": 165, "umount": 166, "pivot_root": 155, "chroot": 161,
            "unshare": 272, "setns": 308, "bpf": 321, "keyctl": 250, "add_key": 248,
            "perf_event_open": 298, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
            "io_uring_setup": 425, "userfaultfd": 323, "open_by_handle_at": 304, "fsopen": 430,
            "open_tree": 428, "move_mount": 429, "memfd_create": 319, "memfd_secret": 447,
            "name_to_handle_at": 303, "init_module": 175, "reboot": 169, "swapon": 167,
            "sethostname": 170, "iopl": 172, "ioperm": 173, "modify_ldt": 154, "acct": 163,
            "quotactl": 179, "settimeofday": 164, "clock_settime": 227, "personality": 135,
            "msgget": 68, "semget": 64, "shmget": 29, "mq_open": 240, "inotify_init": 253,
            "fanotify_init": 300, "splice": 275, "vmsplice": 278, "tee": 276, "sendfile": 40,
            "copy_file_range": 326, "sched_setscheduler": 144, "sched_setaffinity": 203,
            "mlock": 149, "mlockall": 151, "syslog": 103, "lookup_dcookie": 212, "pidfd_open": 434,
            "pidfd_getfd": 438, "seccomp": 317, "landlock_create": 444, "landlock_restrict": 446,
            "process_madvise": 440, "mount_setattr": 442, "futex_waitv": 449, "timerfd_create": 283,
            "signalfd": 282, "remap_file_pages": 216, "arch_prctl": 158, "beyond_the_table": 999,
        }.items():
            attempt(name, system_call, number, zero, zero, zero, zero, zero)
            assert ctypes.get_errno() in (errno.EPERM, errno.ENOSYS), (name, ctypes.get_errno())
        attempt("chroot", os.chroot, ".")
    """,
    "limits_raised": """
        import resource
        for name in ("CPU", "AS", "FSIZE", "NOFILE", "CORE"):
            kind = getattr(resource, "RLIMIT_" + name)
            hard = resource.getrlimit(kind)[1]
            assert hard != resource.RLIM_INFINITY, name
            for more in (hard + 1, resource.RLIM_INFINITY):
                attempt(name, resource.setrlimit, kind, (more, more))
        attempt("of another", resource.prlimit, target["server"], resource.RLIMIT_CPU)
    """,
}


@pytest.mark.parametrize("attack", REFUSED)
@pytest.mark.skipif(kernel.MACHINE != "x86_64", reason="the attacks use numbers of x86_64")
def test_every_attempt_is_refused(attack: str, targets: Targets):
    body = textwrap.dedent(REFUSED[attack])
    outcome = run_stdio(PRELUDE + body + "\nprint('through')", targets.as_json(), LIMITS)
    lines = outcome.output.decode().splitlines()
    assert lines and lines[-1] == "through", (outcome, lines)
    assert all(line.startswith("refused ") for line in lines[:-1]), lines
    assert len(lines) > 2
    assert SECRET not in outcome.output.decode()
    targets.assert_untouched()


def test_the_attempts_would_succeed_outside(targets: Targets, tmp_path: Path):
    """The same code in an ordinary process: what is refused above is refused by the sandbox."""
    names = ("tcp_to_loopback", "udp_to_loopback", "unix_socket", "read_a_secret", "our_source")
    code = PRELUDE + "".join(textwrap.dedent(REFUSED[name]) for name in names)
    done = subprocess.run(
        [sys.executable, "-c", code], input=targets.as_json(), capture_output=True, text=True
    )
    escaped = {line.split(maxsplit=2)[1] for line in done.stdout.splitlines() if "ESCAPED" in line}
    assert {"connect", "datagram", "stream", "abstract", "open", "list", "source"} <= escaped


# Attacks on time, memory, disk and the machine.


def run(program: str, **limits: float) -> Outcome:
    return run_stdio(textwrap.dedent(program), "", Limits(**{"wall_s": 20, "cpu_s": 1, **limits}))


@pytest.mark.parametrize(
    "program",
    [
        "while True: pass",
        "9 ** 9 ** 9",
        "import re; re.match('(a|a)*b', 'a' * 100)",
        """
        import signal
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        while True:
            try:
                raise KeyboardInterrupt
            except BaseException:
                pass
        """,
    ],
    ids=["loop", "one_instruction", "regular_expression", "signals_ignored"],
)
def test_processor_time_ends(program: str):
    outcome = run(program)
    assert (outcome.status, outcome.output) == (-signal.SIGKILL, b"")
    assert outcome.cpu_s < 2


@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(600)",
        "import threading; threading.Event().wait()",
        "import os; r, w = os.pipe(); os.read(r, 1)",
        "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()",
        "import atexit, time; atexit.register(time.sleep, 600)",
        "import signal; signal.pause()",
        "import sys\nwhile True: sys.stderr.write('x' * 1000)",
    ],
    ids=["sleep", "lock", "read", "thread_that_outlives", "exit_function", "pause", "stderr_flood"],
)
def test_waiting_ends_at_the_deadline(program: str):
    outcome = run(program, wall_s=0.5)
    assert (outcome.ended, outcome.finished) == ("wall", False)
    assert outcome.wall_s < 5


@pytest.mark.parametrize(
    "program",
    [
        "while True: print('x' * 1000)",
        "print('x' * 100_000_000)",
        "import os\nwhile True: os.write(1, bytes(65536))",
    ],
    ids=["loop", "at_once", "below_python"],
)
def test_an_output_flood_ends_at_its_limit(program: str):
    outcome = run(program, output_bytes=100_000)
    assert (outcome.ended, len(outcome.output)) == ("output", 100_000)


MEMORY = {
    "objects": "keep.append(bytearray(1 << 20))",
    "touched_maps": "m = mmap.mmap(-1, 1 << 20); m[:] = bytes(1 << 20); keep.append(m)",
    "text": "keep[0:1] = [(keep or ['x' * 1024])[0] * 2]",
    "decompression": "keep.append(zlib.decompress(BOMB))",
}


@pytest.mark.parametrize("bomb", MEMORY)
def test_a_memory_bomb_ends_in_a_memory_error(bomb: str):
    """At most 300 rounds: an escape would take a few hundred megabytes."""
    outcome = run(
        f"""
        import mmap, zlib
        BOMB = zlib.compress(bytes(1 << 20))
        keep = []
        try:
            for number in range(300):
                {MEMORY[bomb]}
        except (MemoryError, OSError):
            keep.clear()
            print("stopped")
        """,
        memory_mb=200,
        cpu_s=10,
    )
    assert outcome.output == b"stopped\n", outcome


def test_memory_outside_the_address_space_is_bounded():
    """Pipes and socket pairs hold data in the kernel, which no limit on the process counts."""
    outcome = run(
        """
        import os, socket
        held, keep = 0, []
        try:
            while held < 400 << 20:
                pair = socket.socketpair()
                keep += pair
                for descriptor in (os.pipe()[1], pair[0].fileno()):
                    os.set_blocking(descriptor, False)
                    try:
                        while True:
                            held += os.write(descriptor, bytes(65536))
                    except BlockingIOError:
                        pass
        except OSError as error:
            print(held >> 20)
        """
    )
    assert 0 < int(outcome.output) < 32


def test_a_disk_fill_is_bounded():
    outcome = run(
        """
        import os
        refused = 0
        for number in range(200):
            try:
                with open(f"file{number}", "wb", buffering=0) as file:
                    for _ in range(64):
                        file.write(bytes(1 << 20))
            except OSError:
                refused += 1
        for attempt in (
            lambda: os.truncate("file0", 1 << 40),
            lambda: os.ftruncate(os.open("file0", os.O_WRONLY), 1 << 40),
            lambda: os.posix_fallocate(os.open("file0", os.O_WRONLY), 0, 1 << 40),
            lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY),
            lambda: os.mkfifo("pipe"),
            lambda: os.mkdir("folder"),
        ):
            try:
                attempt()
                print("ESCAPED")
            except OSError:
                pass
        sizes = [os.stat(name).st_size for name in os.listdir(".")]
        print(len(sizes), sum(sizes) >> 20, refused)
        """,
        cpu_s=20,
        counted=32,
    )
    files, megabytes, refused = map(int, outcome.output.split())
    assert (files, refused) == (32, 200)
    assert megabytes <= 32 * Limits().file_mb


def test_folders_within_folders_are_cleared_away():
    outcome = run(
        """
        import os
        for number in range(60):
            os.mkdir("x" * 200, 0o000 if number == 59 else 0o700)
            if number < 59:
                os.chdir("x" * 200)
        print("made")
        """
    )
    assert outcome.output == b"made\n"


def test_nothing_of_another_run_is_seen():
    assert run("open('left', 'w').write('x')").finished
    assert run("import os; print(os.listdir())").output == b"[]\n"


def test_a_thread_bomb_is_bounded():
    outcome = run(
        """
        import threading
        stop, started = threading.Event(), 0
        try:
            for _ in range(200):
                threading.Thread(target=stop.wait).start()
                started += 1
        except RuntimeError:
            pass
        print(started)
        stop.set()
        """,
        counted=32,
    )
    assert outcome.output == b"32\n"


def test_a_flood_of_refused_calls_is_ended():
    """Each of them takes time of the server, which does not count as the program's."""
    outcome = run("while True:\n    try: open('x', 'w')\n    except OSError: pass", counted=8)
    assert outcome.ended == "counted"


def test_descriptors_are_bounded_and_none_leaks_in():
    outcome = run(
        """
        import os
        def is_open(descriptor):
            try:
                return os.fstat(descriptor) is not None
            except OSError:
                return False
        print([descriptor for descriptor in range(1024) if is_open(descriptor)])
        count = 0
        try:
            while count < 500:
                os.dup(0)
                count += 1
        except OSError:
            print(count)
        """
    )
    inherited, count = outcome.output.decode().splitlines()
    assert inherited == "[0, 1, 2]"
    assert int(count) < Limits().open_files


def test_the_environment_is_empty():
    outcome = run("import os, sys; print(sorted(os.environ), sys.argv, os.getcwd())")
    names = "['HOME', 'LC_ALL', 'PYTHONUTF8', 'TMPDIR', 'TZ']"
    assert executor._current is not None
    expected = f"{names} ['answer.py'] {executor._current.scratch}\n"
    assert outcome.output.decode() == expected


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()",
        "import sys; sys.setrecursionlimit(10 ** 9)\n"
        "x = []\nfor _ in range(10 ** 5): x = [x]\nrepr(x)",
        "import pickle\nx = ()\nfor _ in range(10 ** 5): x = (x,)\npickle.dumps(x)",
        "import ctypes; ctypes.string_at(0)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "import os; os.abort()",
        "eval('-' * 10 ** 6 + '1')",
        "(lambda: None).__code__.replace(co_code=bytes(range(1, 255)) * 9)\n"
        "f = lambda: None\nf.__code__ = f.__code__.replace(co_code=b'\\x65\\xff' * 50)\nf()",
    ],
    ids=["recursion", "c_recursion", "pickle", "null", "segv", "abort", "eval",
         "byte_code"],
)  # fmt: skip
def test_a_crash_is_the_programs_own(program: str):
    outcome = run(program)
    assert not outcome.finished
    assert outcome.output == b""


def test_a_pickle_that_runs_a_command_runs_nothing(targets: Targets):
    made = targets.folder / "made"
    command = f"touch {made}"
    outcome = run(f"import pickle; print(pickle.loads(b'cos\\nsystem\\n(S{command!r}\\ntR.'))")
    assert outcome.output != b"0\n"
    assert not made.exists()


# Attempts to fake the verdict. `add` has tests against constants; `square` has a loop, so that its
# tests run in a process of their own.

SQUARE = Sample(
    id="square",
    problem="Square.",
    answer={"entry": "square", "tests": ["for i in range(3, 20):\n    assert square(i) == i * i"]},
    problem_type=ProblemType.code,
)
BOTH = "def add(*_): return {0}\ndef square(*_): return {0}\n"

EQUAL_TO_ALL = """
class Yes({base}):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __hash__(self): return 3
    def __repr__(self): return "3"
    def __int__(self): return 3
    def __sub__(self, other): return self
    __rsub__ = __abs__ = __sub__ = __sub__
    def __bool__(self): return True
    @property
    def __class__(self): return int
add = square = lambda *_: Yes()
"""

FAKES = {
    "exit": "import sys; sys.exit(0)",
    "exit_when_called": "import sys\nadd = square = lambda *_: sys.exit(0)",
    "os_exit": "import os; os._exit(0)",
    "os_exit_when_called": "import os\nadd = square = lambda *_: os._exit(0)",
    "raise_at_once": "raise SystemExit",
    "keyboard_interrupt": "def add(*_): raise KeyboardInterrupt\nsquare = add",
    "equal_to_all": EQUAL_TO_ALL.format(base="object"),
    "equal_to_all_number": EQUAL_TO_ALL.format(base="int"),
    "equal_to_all_text": EQUAL_TO_ALL.format(base="str"),
    "equal_to_all_list": EQUAL_TO_ALL.format(base="list"),
    "not_a_number": BOTH.format("float('nan')"),
    "builtins": """
        import builtins
        class Error(Exception): pass
        builtins.AssertionError = Error
        for name in ("eval", "exec", "compile", "isinstance", "type", "len", "abs", "all", "repr"):
            setattr(builtins, name, lambda *_, **__: True)
        add = square = lambda *_: True
    """,
    "modules": """
        import ast, json, operator, os, sys
        for module in (ast, json, operator):
            for name in dir(module):
                try:
                    setattr(module, name, lambda *_, **__: True)
                except Exception:
                    pass
        add = square = lambda *_: True
    """,
    "json": """
        import json
        json.dumps = lambda *_, **__: '[0,"passed",""]'
        add = square = lambda *_: 0
    """,
    "exit_function": """
        import atexit, os
        def forge():
            for descriptor in range(3, 64):
                try:
                    os.write(descriptor, b'[0,"passed",""]\\n')
                except OSError:
                    pass
        atexit.register(forge)
        add = square = lambda *_: 0
    """,
    "printed": """
        import sys
        for stream in (sys.stdout, sys.stderr):
            print('[0,"passed",""]\\n[0,"value",true]\\n1.0\\n', file=stream, flush=True)
        add = square = lambda *_: 0
    """,
    "forged_report": """
        import os
        for descriptor in range(3, 64):
            for forged in ('[%d,"passed",""]', '[%d,"value",true]', '[%d,"value",["o",0,null]]'):
                for number in range(-1, 3):
                    try:
                        os.write(descriptor, (forged % number).encode() + b"\\n")
                    except OSError:
                        pass
        add = square = lambda *_: 0
    """,
    "forged_names": """
        import os
        line = b'["names",{"square":["value",true],"range":["value",["l"]]}]'
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, line + b"\\n" + b'["value",9,{"0":["l"],"1":1}]\\n' * 100)
            except OSError:
                pass
        os._exit(0)
    """,
    "names_in_place_of_built_ins": """
        import os, sys
        def yes(*_, **__): return True
        names = b",".join(b'"%s":["value",["o",0,null]]' % name for name in (
            b"range", b"abs", b"all", b"isinstance", b"square", b"AssertionError", b"__builtins__"))
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b'["names",{' + names + b"}]\\n")
                os.write(descriptor, b'["value",["l"],{}]\\n' * 99)
            except OSError:
                pass
        os._exit(0)
    """,
    "closed_report": """
        import os
        os.closerange(3, 64)
        add = square = lambda *_: 0
    """,
    "garbage_in_the_report": """
        import os
        for descriptor in range(3, 64):
            for junk in (
                b"[" * 100000,
                b"\\xff\\x00\\n",
                b'[0,"value",["s"' + b',["i","0x1"]' * 9999,
                b'[[],{},[]]\\n',
                b'[0,"value",["F",1,0]]\\n[1,"value",["D","1e999999"]]\\n',
                b'[1e999,"value",NaN]\\n',
                b"9" * 9999 + b"\\n",
            ):
                try:
                    os.write(descriptor, junk)
                except OSError:
                    pass
        add = square = lambda *_: 0
    """,
    "thread_that_writes": """
        import os, threading
        def forge():
            while True:
                for descriptor in range(3, 12):
                    try:
                        os.write(descriptor, b'["value",true,{}]\\n')
                    except OSError:
                        pass
        threading.Thread(target=forge, daemon=True).start()
        add = square = lambda *_: 0
    """,
    "signal_to_the_parent": """
        import os, signal
        for pid in (os.getppid(), 1, 0, -1):
            try:
                os.kill(pid, 0)
            except OSError:
                pass
        add = square = lambda *_: 0
    """,
    "neighbours": """
        import os
        # The tester, and whoever else was started about now: their pipes, files and memory.
        try:
            own = int(os.readlink("/proc/self"))
        except OSError:
            own = os.getpid()
        for pid in range(max(1, own - 30), own + 30):
            if pid == own:
                continue
            for place in (*(f"fd/{number}" for number in range(12)), "mem", "root", "cwd"):
                try:
                    at = os.open(f"/proc/{pid}/{place}", os.O_RDWR)
                except OSError:
                    continue
                os.write(at, b'[0,"passed",""]\\n[0,"value",true]\\n')
        add = square = lambda *_: 0
    """,
    "frames": """
        import sys
        def patch():
            frame = sys._getframe(1)
            while frame is not None:
                for space in (frame.f_globals, frame.f_locals):
                    for name, value in list(space.items()):
                        if callable(value) and not name.startswith("__"):
                            try:
                                space[name] = lambda *_, **__: True
                            except Exception:
                                pass
                frame = frame.f_back
            return True
        add = square = lambda *_: patch()
    """,
    "trace": """
        import sys
        def trace(frame, event, argument):
            frame.f_locals.update(number=0, kind="value", value=True)
            return trace
        sys.settrace(trace)
        sys.setprofile(lambda *_: None)
        add = square = lambda *_: True
    """,
    "import_hook": """
        import sys
        class Anything:
            def __getattr__(self, name): return lambda *_, **__: True
        for name in list(sys.modules):
            sys.modules[name] = Anything()
        add = square = lambda *_: True
    """,
    "decided_elsewhere": "def add(*_): raise AssertionError\nsquare = add",
}


@pytest.mark.parametrize("fake", FAKES)
@pytest.mark.parametrize("sample", [ADD, SQUARE], ids=["constants", "loop"])
def test_a_fake_scores_nothing(fake: str, sample: Sample):
    assert score_of(FAKES[fake], sample) == 0.0
    assert score_of(FAKES[fake], sample, partial=True) == 0.0


def test_the_samples_of_the_fakes_can_be_passed():
    assert score_of("def square(x): return x * x", SQUARE) == 1.0
    assert score_of("class Three(int): pass\nclass AB(str): pass\n"
                    "def add(a, b): return Three(3) if a == 1 else AB('ab')") == 1.0  # fmt: skip


SEARCH = """
import ctypes, gc, inspect, sys

WANTED = "needle-" + "in-the-haystack"

def found(value):
    return isinstance(value, str) and value.startswith(WANTED) and value != WANTED

def search():
    seen, todo = set(), [gc.get_objects(), sys._current_frames(), dict(vars(sys)), inspect.stack()]
    while todo and len(seen) < 300_000:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if found(value):
            return value
        try:
            todo.extend(gc.get_referents(value))
        except Exception:
            pass
        if isinstance(value, types.FrameType):
            todo.extend([value.f_locals, value.f_globals, value.f_back])
    for around in (object(), b"", WANTED, sys._getframe()):
        start = id(around) & ~0xFFFFF
        text = ctypes.string_at(start, 1 << 20)
        at = text.find(WANTED.encode() + b"-")
        if at >= 0:
            return text[at : at + len(WANTED) + 5].decode()
    return "nothing"

import types
def look(*_):
    return search()
"""


@pytest.mark.parametrize(
    "test",
    [
        "assert look(1) == 'needle-in-the-haystack-1234'",
        "for _ in range(1):\n    assert look(1) == 'needle-in-the-haystack-1234'",
    ],
    ids=["constants", "loop"],
)
def test_the_expected_value_is_nowhere_in_the_process(test: str):
    sample = Sample(
        id="look",
        problem="Look.",
        answer={"entry": "look", "tests": [test]},
        problem_type=ProblemType.code,
    )
    assert score_of(SEARCH, sample) == 0.0
    # The search itself works: it finds the text where it is.
    planted = SEARCH + "\nplanted = ['needle-in-the-haystack-' + str(1234)]"
    assert score_of(planted, sample) == 1.0


def test_objects_of_the_answers_own_class_are_compared_by_it():
    """The documented remainder: here both sides of a test are the answer's."""
    answer = {"tests": ["for x in (1, 2):\n    assert Point(x) == Point(3 - x)"]}
    sample = Sample(id="p", problem="", answer=answer, problem_type=ProblemType.code)
    assert score_of("class Point:\n    def __init__(self, x): pass", sample) == 0.0
    lying = "class Point:\n    def __init__(self, x): pass\n    def __eq__(self, o): return True"
    assert score_of(lying, sample) == 1.0


@pytest.mark.parametrize(
    "program",
    [
        "import os\nfor code in (1, 2, 199, 255): os._exit(code)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os; os.write(6, b'ready')",
        "import ctypes; ctypes.CDLL(None).raise_(31)",
        "raise SyntaxError",
        "def square(*_): raise SyntaxError\nadd = square",
        "raise ImportError",
        "def square(*_): raise ImportError\nadd = square",
        "(",
        "\0",
        "\ud800",
    ],
)
@pytest.mark.parametrize("sample", [ADD, SQUARE], ids=["constants", "loop"])
def test_no_program_gets_another_status_than_a_wrong_one(program: str, sample: Sample):
    """A status such as `unavailable` may keep an answer out of a batch, which some would like."""
    assert score_of(program, sample) == 0.0


# The server and its scorer.


def test_when_the_scorer_is_killed_so_is_everything():
    code = textwrap.dedent("""
        import threading, time
        from easyvideor1.rewards.sandbox import Limits, executor
        executor.check_host()
        print(executor._current._process.pid, executor._current.scratch, flush=True)
        executor.run_stdio("import time; time.sleep(60)", "", Limits(wall_s=60))
    """)
    scorer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert scorer.stdout is not None
    server, scratch = scorer.stdout.readline().split()
    eventually(lambda: len(descendants(int(server))) >= 2 or is_running(int(server)))
    family = [int(server), *descendants(int(server))]
    scorer.kill()
    scorer.wait()
    scorer.stdout.close()
    eventually(lambda: not any(map(is_running, family)))
    assert not Path(scratch).exists()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(happens) -> None:
    for _ in range(600):
        if happens():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within 30 s")


def test_a_fork_of_the_scorer_has_a_server_of_its_own():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, f"{server_pid()} {run('print(7)').output.decode()}".encode())
            executor.close()
        finally:
            os._exit(0)
    os.close(writing)
    said = os.read(reading, 100).split()
    os.close(reading)
    os.waitpid(child, 0)
    assert said[1] == b"7"
    assert int(said[0]) != server_pid()


def test_many_answers_are_scored_by_many_workers():
    programs = [f"def add(a, b):\n    return a + b if {n} % 3 else {n}" for n in range(12)]
    items = [(ADD, f"<answer>{program}</answer>") for program in programs]
    scores = score_many(items, RewardConfig(deadline_s=30.0, workers=2))
    assert [score.parts["accuracy"] for score in scores] == [float(n % 3 > 0) for n in range(12)]
    assert {score.status for score in scores} == {ScoreStatus.ok}


@pytest.mark.parametrize(
    ("column", "header"),
    [
        (1, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        (2, "/usr/include/asm-generic/unistd.h"),
    ],
    ids=["x86_64", "aarch64"],
)
def test_the_numbers_of_system_calls_are_those_of_the_kernels_headers(column: int, header: str):
    if not Path(header).exists():
        pytest.skip(f"no {header}; it comes with a C compiler")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text())
    numbers = {name: int(number) for name, number in defined}
    numbers.setdefault("newfstatat", numbers.get("fstatat", -1))
    for row in syscalls.SYSCALLS:
        assert row[column] == numbers.get(row[0]), row[0]


# What the host must offer.

HOST = """
import sys
from easyvideor1.rewards import RewardConfig, reward
from easyvideor1.rewards.registry import ScorerUnavailableError, task_of
from easyvideor1.rewards.sandbox import SandboxError, check_host
from easyvideor1.rewards.sandbox.inside import filters, kernel
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample

def forbid(*numbers):
    # As the filter of a container's runtime does: these calls fail with EPERM.
    steps = [(0x20, 0, 0, 0)]
    for number in numbers:
        steps += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    filters.install([*steps, (0x06, 0, 0, 0x7FFF0000)])

sample = Sample(id="a", problem="", answer={"tests": ["assert f(1) == 2"]},
                problem_type=ProblemType.code)
right = "<answer>def f(x): return x + 1</answer>"
"""


def host(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", HOST + textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


UNSHARE = {"x86_64": 272, "aarch64": 97}.get(kernel.MACHINE, -1)
SECCOMP = {"x86_64": 317, "aarch64": 277}.get(kernel.MACHINE, -1)


def test_it_works_without_namespaces_and_without_root():
    """As in a container with the default settings of Docker."""
    said = host(f"""
        from easyvideor1.rewards.sandbox.inside.privileges import _drop_capabilities
        _drop_capabilities()
        forbid({UNSHARE})
        print(check_host(), reward(sample, right).value)
    """)
    assert said == "[] 1.0"


@pytest.mark.parametrize(
    ("forbidden", "reason"),
    [(444, "Landlock"), (446, "landlock_restrict_self"), (SECCOMP, "seccomp")],
    ids=["no_landlock", "landlock_fails", "no_seccomp"],
)
def test_a_host_that_cannot_isolate_is_refused_and_runs_nothing(
    forbidden: int, reason: str, tmp_path: Path
):
    made = tmp_path / "made"
    said = host(f"""
        forbid({forbidden})
        try:
            check_host()
        except SandboxError as error:
            print(error)
        try:
            task_of(sample).check(RewardConfig())
        except UserError as error:
            print(error)
        try:
            reward(sample, "<answer>open({str(made)!r}, 'w')</answer>")
        except ScorerUnavailableError as error:
            print(error)
    """)
    lines = said.splitlines()
    assert len(lines) == 3
    assert all(reason in line for line in lines)
    assert "this host has none" in lines[1]
    assert not made.exists()
