import base64
import ssl

import pytest
import yaml

from motley.client import kubeconfig
from motley.client.kubeconfig import ConfigError, Impersonation

EXEC = "client.authentication.k8s.io/v1"


def write(tmp_path, *, cluster=None, user=None, context=None, current="c"):
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": "k", "cluster": {"server": "https://h:1/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", **(context or {})}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(document))
    return path


def test_inline_data_is_decoded_and_wins_over_a_file(tmp_path):
    inline = base64.b64encode(b"inline").decode()
    (tmp_path / "ca.crt").write_bytes(b"file")
    cluster = {"certificate-authority-data": inline, "certificate-authority": "ca.crt"}
    assert kubeconfig.load(write(tmp_path, cluster=cluster)).ca == b"inline"


def test_files_are_relative_to_the_kubeconfig(tmp_path):
    for name in ("ca.crt", "me.crt", "me.key"):
        (tmp_path / name).write_text(name)
    config = kubeconfig.load(
        write(
            tmp_path,
            cluster={"certificate-authority": "ca.crt"},
            user={"client-certificate": "me.crt", "client-key": str(tmp_path / "me.key")},
        )
    )
    assert (config.ca, config.client_cert, config.client_key) == (b"ca.crt", b"me.crt", b"me.key")
    assert config.server == "https://h:1"


def test_tokens_namespace_and_other_contexts(tmp_path):
    path = write(tmp_path, user={"tokenFile": "t"}, context={"namespace": "x"}, current="")
    config = kubeconfig.load(path, context="c")
    assert (config.token_file, config.namespace) == (tmp_path / "t", "x")
    assert kubeconfig.load(write(tmp_path, user={"token": "abc"})).token == "abc"
    assert "abc" not in repr(kubeconfig.load(write(tmp_path, user={"token": "abc"})))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"current": ""}, "no current-context"),
        ({"current": "missing"}, "no context named 'missing'"),
        ({"context": {"cluster": "x"}}, "no cluster named 'x'"),
        ({"context": {"user": "x"}}, "no user named 'x'"),
        ({"cluster": {"server": ""}}, "has no server"),
        ({"cluster": {"certificate-authority": "absent"}}, "No such file"),
        ({"cluster": {"certificate-authority-data": "%%%"}}, "not base64"),
        ({"user": {"exec": {"command": "x"}}}, "exec.apiVersion is None"),
        ({"user": {"exec": {"apiVersion": EXEC}}}, "exec has no command"),
        ({"user": {"exec": "x"}}, "exec is not a mapping"),
        (
            {"user": {"exec": {"apiVersion": EXEC, "command": "x", "interactiveMode": "Always"}}},
            "needs a terminal",
        ),
        ({"user": {"auth-provider": {"name": "oidc"}}}, "auth-provider is gone"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        kubeconfig.load(write(tmp_path, **change))


def test_a_missing_or_broken_file_is_said(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        kubeconfig.load(tmp_path / "absent")
    broken = tmp_path / "broken"
    broken.write_text("a: [")
    with pytest.raises(ConfigError, match="not YAML"):
        kubeconfig.load(broken)
    broken.write_text("- a")
    with pytest.raises(ConfigError, match="not a mapping"):
        kubeconfig.load(broken)


def test_the_default_is_the_environment_then_the_pod(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path)))
    assert kubeconfig.load().server == "https://h:1"
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="not in a pod"):
        kubeconfig.load()


def test_in_a_pod_the_mounted_account_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("mine\n")
    config = kubeconfig.in_cluster(tmp_path)
    assert (config.server, config.namespace) == ("https://[fd00::1]:6443", "mine")


def test_plain_http_needs_no_tls(tmp_path):
    config = kubeconfig.load(write(tmp_path, cluster={"server": "http://h:1"}))
    assert config.ssl_context() is None


def test_insecure_turns_verification_off(tmp_path):
    config = kubeconfig.load(write(tmp_path, cluster={"insecure-skip-tls-verify": True}))
    context = config.ssl_context()
    assert context is not None
    assert context.verify_mode == ssl.CERT_NONE


def test_a_bad_authority_or_pair_is_a_config_error():
    with pytest.raises(ConfigError, match="authority"):
        kubeconfig.Config(server="https://h", ca=b"nonsense").ssl_context()
    with pytest.raises(ConfigError, match="client certificate"):
        kubeconfig.Config(server="https://h", client_cert=b"x", client_key=b"y").ssl_context()


def test_several_files_are_one_and_the_first_to_say_something_wins(tmp_path, monkeypatch):
    first, second = tmp_path / "one", tmp_path / "two"
    first.mkdir()
    second.mkdir()
    (second / "ca.crt").write_text("of the second")
    one = yaml.safe_load(write(first, current="c2", user={"token": "first"}).read_text())
    del one["clusters"]
    (first / "config").write_text(yaml.safe_dump(one))
    path = write(second, user={"token": "second"}, cluster={"certificate-authority": "ca.crt"})
    two = yaml.safe_load(path.read_text())
    two["contexts"].append({"name": "c2", "context": {"cluster": "k", "user": "u"}})
    path.write_text(yaml.safe_dump(two))
    absent = tmp_path / "absent"
    monkeypatch.setenv("KUBECONFIG", f"{absent}:{first / 'config'}:{path}")
    config = kubeconfig.load()
    assert (config.token, config.ca) == ("first", b"of the second")


def test_whom_to_act_as_becomes_headers(tmp_path):
    user = {
        "as": "jane",
        "as-groups": ["dev", "ops"],
        "as-uid": "7",
        "as-user-extra": {"a/b": ["c"]},
    }
    config = kubeconfig.load(write(tmp_path, user=user))
    assert config.impersonate == Impersonation("jane", ("dev", "ops"), "7", {"a/b": ("c",)})
    assert config.impersonate.headers() == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-a%2Fb", "c"),
    ]


def test_a_plugins_entry_is_read_and_a_path_is_relative_to_the_file(tmp_path):
    entry = {
        "apiVersion": EXEC,
        "command": "bin/login",
        "args": ["--for", 1],
        "env": [{"name": "A", "value": "b"}],
        "provideClusterInfo": True,
        "installHint": "install it",
    }
    found = kubeconfig.load(write(tmp_path, user={"exec": entry})).exec
    assert found is not None
    assert (found.command, found.args) == (str(tmp_path / "bin/login"), ("--for", "1"))
    assert (found.env, found.cluster) == ({"A": "b"}, {"server": "https://h:1/"})
    entry["command"] = "login"
    assert kubeconfig.load(write(tmp_path, user={"exec": entry})).exec.command == "login"
