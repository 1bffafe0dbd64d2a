"""Where processes of a run meet: a free port, and the network interface behind an address.

gloo would listen on whatever the name of the machine resolves to, which is nothing in many
containers and the loopback on many servers. Called by `ray_learner`.
"""

import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915
"""Linux's request for the IPv4 address of an interface."""


def free_port(host: str) -> int:
    """A port of this machine on which nobody listens yet."""
    with socket.socket() as free:
        free.bind((host, 0))
        return free.getsockname()[1]


def interface_of(address: str) -> str | None:
    """Name of the interface of this machine that has an IPv4 address, e.g. `lo` for 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
