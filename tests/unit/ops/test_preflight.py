import os
import socket

import pytest

from motley.ops import preflight
from motley.ops.config import Config
from motley.ops.failure import Failure


@pytest.fixture
def taken():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_a_taken_port_is_named_with_who_holds_it(taken):
    assert not preflight.is_free(taken)
    assert f"(pid {os.getpid()})" in preflight.listener(taken)


def problems(config, ours):
    try:
        preflight.check(config, ours)
    except Failure as failure:
        return failure.advice
    return ""


def test_a_taken_port_is_no_problem_when_it_is_ours(tmp_path, taken):
    config = Config(root=tmp_path, api_port=taken, port_base=61000)
    said = problems(config, ours=set())
    assert f"port {taken} (apiserver) is taken" in said
    assert "--port" in said
    assert str(taken) not in problems(config, ours={taken})


def test_a_root_too_deep_for_sockets_is_refused(tmp_path):
    with pytest.raises(Failure) as caught:
        preflight.check(Config(root=tmp_path / ("x" * 100)), ours=set(Config().ports))
    assert "shorter --root" in caught.value.advice


def test_controllers_are_found_in_both_versions_of_cgroups(tmp_path):
    for name in ("cpu", "memory", "pids", "freezer"):
        (tmp_path / name).mkdir()
    assert preflight.controllers(tmp_path) == {"cpu", "memory", "pids"}
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    assert {"cpu", "memory", "pids"} <= preflight.controllers(tmp_path)


def test_someone_who_is_not_root_is_told_so(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Failure, match="needs root"):
        preflight.require_root()
