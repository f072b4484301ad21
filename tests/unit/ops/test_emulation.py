"""Nodes of another architecture: what the kernel is told, and which nodes they are."""

import struct
from pathlib import Path

import msgspec
import pytest

from motley.ops import config as configs
from motley.ops import emulation, images, members
from motley.ops.config import Config
from motley.ops.failure import Failure


def fields(line):
    """Name, magic, mask, interpreter and flags of a registration."""
    _, name, kind, offset, magic, mask, interpreter, flags = line.split(":")
    assert (kind, offset) == ("M", "")

    def data(text):
        return bytes(int(byte, 16) for byte in text.split("\\x")[1:])

    return name, data(magic), data(mask), interpreter, flags


def header(machine, *, kind=2, abi=0, data=1, bits=2):
    """The first bytes of an ELF file."""
    return struct.pack("<4sBBBB8xHH", b"\x7fELF", bits, data, 1, abi, kind, machine)


@pytest.mark.parametrize(
    ("first_bytes", "is_meant"),
    [
        (header(0xB7), True),
        (header(0xB7, kind=3), True),  # position-independent
        (header(0xB7, abi=3), True),  # Linux' own ABI
        (header(0x3E), False),  # this machine's
        (header(0xB7, kind=1), False),  # an object file
        (header(0xB7, data=2), False),  # big-endian
        (header(0x28, bits=1), False),  # 32 bit
        (b"#!/bin/sh\n".ljust(20), False),
    ],
)
def test_the_kernel_is_told_of_programs_of_that_architecture_and_of_no_others(
    first_bytes, is_meant
):
    line = emulation.registration("x", emulation.TARGETS["arm64"], Path("/q"))
    name, magic, mask, interpreter, flags = fields(line)
    assert (name, interpreter) == ("x", "/q")
    assert set("FP") <= set(flags)
    masked = bytes(a & b for a, b in zip(first_bytes, mask, strict=True))
    assert (masked == bytes(a & b for a, b in zip(magic, mask, strict=True))) == is_meant
    assert len(line) < 1920  # the kernel's limit


def test_the_machines_own_programs_and_unknown_ones_are_refused(monkeypatch):
    monkeypatch.setattr(images, "architecture", lambda: "amd64")
    emulation.check(["arm64"])
    with pytest.raises(Failure, match="nothing to emulate"):
        emulation.check(["arm64", "amd64"])
    with pytest.raises(Failure, match="vax cannot be emulated"):
        emulation.check(["vax"])


def test_every_node_has_an_entry_of_its_own(tmp_path):
    one = Config(root=tmp_path / "a", emulates="arm64")
    other = msgspec.structs.replace(one, root=tmp_path / "b")
    assert emulation.entry(one) == emulation.entry(one) != emulation.entry(other)
    assert emulation.problem(one) == "the kernel does not know arm64 programs"


def resolved(root, **options):
    return configs.resolve(root, {"node_name": None, **options})


def test_one_architecture_means_the_last_node_and_stays_with_it(tmp_path):
    config = resolved(tmp_path, nodes=3, arch="arm64")
    assert config.arch == "node-3=arm64"
    config.save()
    grown = resolved(tmp_path, nodes=4)
    assert members.architectures(grown) == {"node-3": "arm64"}
    assert members.member(grown, "node-3").emulates == "arm64"
    assert members.member(grown, "node-4").emulates == ""
    assert resolved(tmp_path, nodes=2).arch == ""


def test_an_architecture_alone_makes_two_nodes(tmp_path):
    config = resolved(tmp_path, arch="arm64")
    assert (config.nodes, config.arch) == (2, "node-2=arm64")


def test_nodes_can_be_named_and_the_first_is_the_machine_itself(tmp_path):
    config = resolved(tmp_path, nodes=4, arch="node-2=arm64,node-4=arm64")
    assert members.architectures(config) == {"node-2": "arm64", "node-4": "arm64"}
    for wrong in ("node-1=arm64", "node-9=arm64"):
        with pytest.raises(Failure, match=r"node-2, node-3 can be emulated"):
            resolved(tmp_path / "b", nodes=3, arch=wrong)
