import msgspec
import pytest

from motley.ops import install
from motley.ops.failure import Failure

DEB822 = """\
Types: deb
# a snapshot
URIs: http://mirror.example.org/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://mirror.example.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://packages.example.com/other
Suites: stable
Components: main
"""


def test_another_suite_comes_from_the_machines_own_mirror():
    assert install.for_suite(DEB822, "trixie") == (
        "Types: deb\n"
        "URIs: http://mirror.example.org/debian\n"
        "Suites: trixie\n"
        "Components: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )


def test_one_line_sources_are_understood_as_well():
    sources = (
        "# deb http://old.example.org/debian bookworm main\n"
        "deb http://mirror.example.org/debian-security bookworm-security main\n"
        "deb [signed-by=/x.gpg arch=amd64] http://mirror.example.org/debian/ bookworm main\n"
    )
    assert install.list_for_suite(sources, "trixie") == (
        "deb [signed-by=/x.gpg arch=amd64] http://mirror.example.org/debian/ trixie main\n"
    )


def test_a_cloud_image_names_a_list_of_mirrors():
    stanza = "Types: deb\nURIs: mirror+file:///etc/apt/mirrors/{}.list\nSuites: {}\n"
    sources = "\n".join(
        [stanza.format("debian-security", "bookworm-security"), stanza.format("debian", "bookworm")]
    )
    assert install.for_suite(sources, "trixie") == stanza.format("debian", "trixie")


def test_sources_without_debian_are_an_error():
    with pytest.raises(Failure, match="no entry for Debian"):
        install.for_suite("", "trixie")
    with pytest.raises(Failure, match="no entry for Debian"):
        install.list_for_suite("deb http://x.example.org/ubuntu jammy main", "trixie")


def fake_kubectl(path, minor):
    path.parent.mkdir(parents=True, exist_ok=True)
    answer = msgspec.json.encode({"clientVersion": {"major": "1", "minor": minor}}).decode()
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return path


def test_an_old_kubectl_is_passed_over_for_the_fetched_one(tmp_path, monkeypatch):
    old = fake_kubectl(tmp_path / "path" / "kubectl", "20+")
    monkeypatch.setenv("PATH", f"{old.parent}:/bin")
    assert install.find_kubectl(tmp_path / "cache") is None
    fetched = fake_kubectl(tmp_path / "cache" / "bin" / "kubectl", "32")
    assert install.find_kubectl(tmp_path / "cache") == str(fetched)


def test_a_current_kubectl_on_the_path_is_used(tmp_path, monkeypatch):
    current = fake_kubectl(tmp_path / "kubectl", "33")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert install.find_kubectl(None) == str(current)


def test_a_program_that_says_nothing_is_no_kubectl(tmp_path):
    assert install.kubectl_version("/bin/false") is None
    assert install.kubectl_version(str(tmp_path / "missing")) is None


def test_someone_who_is_not_root_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(install, "missing", lambda: ["runc"])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Failure) as caught:
        install.packages()
    assert "apt-get install --no-install-recommends runc" in caught.value.advice


def test_etcd_is_installed_for_the_tests_and_not_with_a_cluster(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda command, path=None: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Failure) as caught:
        install.packages()
    assert "etcd-server" not in caught.value.message + caught.value.advice
    monkeypatch.setattr("shutil.which", lambda name, path=None: None if name == "etcd" else name)
    with pytest.raises(Failure, match="etcd-server"):
        install.packages(for_tests=True)


def test_the_old_kubectl_is_fetched_once_beside_the_current_one(tmp_path, monkeypatch):
    fetched = []

    def fetch(scratch, suite, names):
        fetched.append(suite)
        return scratch / "kubectl.deb"

    def extract(package, tree):
        fake_kubectl(tree / "usr/bin/kubectl", "20")

    monkeypatch.setattr(install, "fetch_newer", fetch)
    monkeypatch.setattr("motley.ops.rootfs.extract", extract)

    program = install.old_kubectl(tmp_path, say=lambda _: None)

    assert install.old_kubectl(tmp_path, say=lambda _: None) == program
    assert install.kubectl_version(program) == (1, 20)
    assert fetched == ["bookworm"]
    assert not (tmp_path / "bin" / "kubectl").exists()
