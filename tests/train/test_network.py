"""Ports and interfaces of this machine."""

import socket

from easyvideor1.train.network import free_port, interface_of


def test_the_loopback_has_its_interface_and_a_foreign_address_none():
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.1") is None  # kept for documentation


def test_a_free_port_can_be_listened_on():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port("127.0.0.1")))
