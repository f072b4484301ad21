"""Which kernel parameters pods may set."""

import pytest

from motley.api.views.pod import Pod
from motley.node import sysctls


def pod(*names, **spec):
    listed = [{"name": name, "value": "1"} for name in names]
    return Pod.of({"spec": {"securityContext": {"sysctls": listed}, **spec}})


def test_safe_ones_are_allowed_in_both_spellings():
    assert sysctls.refusal(pod("kernel.shm_rmid_forced", "net/ipv4/tcp_syncookies")) == ""
    assert sysctls.refusal(Pod.of({"spec": {}})) == ""


def test_others_only_where_the_operator_says_so():
    words = 'forbidden sysctl: "kernel.msgmax" not allowlisted'
    assert sysctls.refusal(pod("kernel.msgmax")) == words
    assert sysctls.refusal(pod("kernel.msgmax"), ["kernel.sem", "net.core.*"]) == words
    assert sysctls.refusal(pod("kernel.msgmax"), ["kernel.msg*"]) == ""
    assert sysctls.refusal(pod("kernel/msgmax"), ["kernel.msgmax"]) == ""


def test_a_namespace_of_the_node_is_not_the_pods_to_change():
    shared = pod("net.ipv4.tcp_syncookies", hostNetwork=True)
    assert "not allowed with host net" in sysctls.refusal(shared)
    shared = pod("kernel.shm_rmid_forced", hostIPC=True)
    assert "not allowed with host ipc" in sysctls.refusal(shared)


def test_what_belongs_to_the_whole_machine_cannot_be_allowed():
    sysctls.check_allowed(["kernel.msg*", "net.core.somaxconn"])
    with pytest.raises(ValueError, match=r"vm\.\*"):
        sysctls.check_allowed(["vm.*"])
