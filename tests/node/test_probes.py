"""Probes on real containers."""

import pytest

from .conftest import eventually

pytestmark = pytest.mark.root


def test_readiness_follows_what_the_container_says(rig):
    probe = {
        "exec": {"command": ["test", "-e", "/tmp/ready"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    rig.pod("moody", "sleep", "1000", readinessProbe=probe)
    rig.until_phase("moody", "Running")
    assert rig.container("moody")["ready"] is False
    rig.exec("moody", "touch", "/tmp/ready")
    rig.until_ready("moody")
    rig.exec("moody", "rm", "/tmp/ready")
    eventually(lambda: rig.container("moody")["ready"] is False)
    assert rig.container("moody")["restartCount"] == 0
    rig.delete("moody")


def test_a_failing_http_liveness_probe_restarts_the_container(rig):
    script = "mkdir -p /www; echo ok > /www/healthz; httpd -f -p 8080 -h /www"
    probe = {
        "httpGet": {"path": "/healthz", "port": "web"},
        "periodSeconds": 1,
        "failureThreshold": 2,
        "initialDelaySeconds": 1,
    }
    rig.pod(
        "mortal",
        *("sh", "-c", script),
        livenessProbe=probe,
        ports=[{"name": "web", "containerPort": 8080}],
    )
    rig.until_ready("mortal")
    first = rig.container("mortal")["containerID"]
    rig.exec("mortal", "rm", "/www/healthz")

    def restarted():
        now = rig.container("mortal")
        return now["restartCount"] == 1 and "running" in now["state"] and now

    after = eventually(restarted)
    assert after["containerID"] != first
    reasons = rig.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
    assert "Unhealthy" in reasons
    assert "Killing" in reasons
    rig.delete("mortal")


def test_a_startup_probe_holds_the_others_back(rig):
    rig.pod(
        "slow",
        *("sh", "-c", "sleep 2; touch /tmp/up; httpd -f -p 9000"),
        startupProbe={
            "exec": {"command": ["test", "-e", "/tmp/up"]},
            "periodSeconds": 1,
            "failureThreshold": 10,
        },
        livenessProbe={
            "exec": {"command": ["test", "-e", "/tmp/up"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
        },
        readinessProbe={"tcpSocket": {"port": 9000}, "periodSeconds": 1},
    )
    rig.until_phase("slow", "Running")
    assert rig.container("slow")["started"] is False
    status = rig.until_ready("slow")
    assert status["containerStatuses"][0]["restartCount"] == 0
    rig.delete("slow")
