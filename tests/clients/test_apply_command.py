"""`motley apply` against a real server, which need not read other systems' spellings."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def apply(server, *arguments):
    command = [sys.executable, "-m", "motley.cli.main", "apply"]
    return subprocess.run(
        [*command, "--kubeconfig", str(server.kubeconfig), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_manifest_that_kubectl_refuses_is_applied_again_and_again(server, kubectl_on):
    kubectl = kubectl_on(server)
    dns = EXAMPLES / "minik8s/dns.yaml"
    assert "resource name may not be empty" in _refused(kubectl, dns)

    for _ in range(2):
        done = apply(server, "--compat", "minik8s", "-f", str(dns))
        assert (done.returncode, done.stdout) == (0, "route/dns-test applied\n"), done.stderr
        assert "Warning: v1 DNS read as motley.io/v1 Route" in done.stderr
    shown = kubectl("get", "route", "dns-test", "--output=jsonpath={.spec.paths[*].path}").out
    assert shown.split() == ["/world", "/new/world"]


def _refused(kubectl, file):
    named = file.read_text().replace("kind: DNS", "kind: ConfigMap")  # a kind this server has
    return kubectl("apply", "-f", "-", stdin=named, fails=True).err


def test_plain_manifests_are_applied_where_they_say_or_where_told(server, kubectl_on):
    kubectl = kubectl_on(server)
    kubectl("create", "namespace", "other")
    text = EXAMPLES / "configmap"
    files = [f"--filename={f}" for f in sorted(text.glob("*.yaml"))]
    done = apply(server, "--namespace", "other", *files)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" applied\n") >= len(files)
    assert kubectl("get", "all,configmaps", "-n", "other", "--output=name").out


def test_what_cannot_be_applied_is_one_clear_line(server, tmp_path):
    for text, words in (
        ("- 1\n", "a manifest is an object"),
        ("{\n", "broken.yaml"),
        ("apiVersion: v1\nkind: DNS\n", 'no kind "DNS" in version "v1"'),
        ("apiVersion: v1\nkind: Pod\n", "Pod: metadata.name is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", "spec.containers: Required value"),
    ):
        file = tmp_path / "broken.yaml"
        file.write_text(text)
        done = apply(server, "-f", str(file))
        assert (done.returncode, words in done.stderr) == (1, True), done.stderr
        assert "Traceback" not in done.stderr
