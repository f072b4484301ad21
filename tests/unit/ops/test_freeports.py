"""Ports are handed out once in a long while, to all processes of a user together."""

import multiprocessing
import socket
import tempfile

import pytest

from motley.ops import freeports


@pytest.fixture(autouse=True)
def own_cursor(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_no_port_comes_twice_soon():
    found = [freeports.free_port() for _ in range(50)] + freeports.free_ports(50)
    assert len(set(found)) == 100


def test_no_two_processes_are_given_the_same_port():
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.map(freeports.free_ports, [5] * 20)
    assert len({port for ports in found for port in ports}) == 100


def test_ports_are_not_among_those_the_kernel_gives_away():
    with open("/proc/sys/net/ipv4/ip_local_port_range") as text:
        lowest, _ = map(int, text.read().split())
    assert max(freeports.free_ports(10)) < min(lowest, 30_000)


def test_a_port_somebody_has_is_passed_over():
    first = freeports.free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 1))
        taken.listen()
        assert freeports.free_port() > first + 1


def test_a_spoilt_cursor_is_begun_anew(tmp_path):
    freeports.free_port()
    [cursor] = tmp_path.iterdir()
    cursor.write_text("so much")
    assert freeports.free_port() in freeports.PORTS


def test_more_than_there_are_is_an_error_in_words():
    with pytest.raises(OSError, match="fewer than 20000 free ports from 12000 to 29999"):
        freeports.free_ports(20_000)
