"""One's own images: names, files, how they start; and that they are the same every time."""

import gzip
import io
import os
import tarfile

import pytest
from click.testing import CliRunner

from motley.cli.main import main
from motley.ops import imagebuild, images, oci, rootfs
from motley.ops.failure import Failure
from motley.ops.imagebuild import Copy, Order

NATIVE = images.architecture()
FOREIGN = "arm64" if NATIVE == "amd64" else "amd64"


@pytest.fixture(autouse=True)
def no_packages(monkeypatch):
    monkeypatch.setattr(rootfs, "download", lambda *_, **__: [])


def members(layer):
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer.data))) as opened:
        return {member.name: member for member in opened}


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("web", "localhost/web:1"),
        ("web:2.0", "localhost/web:2.0"),
        ("team/web", "localhost/team/web:1"),
        ("localhost/motley/web:3", "localhost/motley/web:3"),
        ("registry.example:5000/web", "registry.example:5000/web:1"),
    ],
)
def test_a_name_without_a_registry_is_this_machines(given, full):
    assert imagebuild.reference(given) == full


@pytest.mark.parametrize("name", ["Web", "web:", "a b", "web@sha256:" + "0" * 64])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(Failure):
        imagebuild.reference(name)


def test_the_container_starts_as_said_and_else_as_its_base():
    base = {"Entrypoint": ["nginx"], "Cmd": ["-g"], "Env": ["PATH=/bin", "A=1"], "User": "1"}
    config = imagebuild.config
    assert config(base, {})["Cmd"] == ["-g"]
    assert "Entrypoint" not in config(base, {"Cmd": ["sh"]})
    assert "Cmd" not in config(base, {"Entrypoint": ["sh"]})
    assert config(base, {"Env": ["A=2", "B=x=y"]})["Env"] == ["PATH=/bin", "A=2", "B=x=y"]
    assert config(base, {"User": "2"})["User"] == "2"


def test_files_go_where_the_image_has_its_programs(tmp_path):
    program = tmp_path / "tool.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("hi")
    copies = (
        imagebuild.copy(f"{program}:/bin/"),
        imagebuild.copy(f"{tmp_path / 'site'}:/srv/www"),
    )
    assert copies[0] == Copy(program, "/bin/tool.sh")
    assert imagebuild.copy(f"{tmp_path / 'site'}:/srv/") == Copy(tmp_path / "site", "/srv/")
    target = tmp_path / "x.tar"
    imagebuild.build(
        Order("localhost/x:1", copies=copies), [NATIVE], target, tmp_path / "c", lambda _: None
    )
    (image,) = oci.read(target)
    found = members(image.layers[-1])
    assert found["usr/bin/tool.sh"].mode == 0o755
    assert found["srv/www/index.html"].mtime == 0
    assert "bin" not in found  # it would hide the base's link


@pytest.mark.parametrize("text", ["x", "x:relative", "/etc/passwd:/a/../../b", "/no/such:/a"])
def test_a_copy_that_cannot_be_made_is_refused(text):
    with pytest.raises(Failure, match="--copy"):
        imagebuild.copy(text)


def test_the_same_order_has_the_same_digest_whoever_gives_it(tmp_path):
    digests = set()
    for name, mask in (("one", 0o022), ("two", 0o077)):
        before = os.umask(mask)
        try:
            file = tmp_path / name / "app.py"
            file.parent.mkdir(mode=0o755)
            file.write_text("print()")
            order = Order("localhost/app:1", copies=(Copy(file, "/app/app.py"),))
            digests.add(
                imagebuild.build(
                    order, [NATIVE], tmp_path / f"{name}.tar", tmp_path / name / "c", lambda _: None
                )
            )
        finally:
            os.umask(before)
    assert len(digests) == 1
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_several_architectures_are_one_image(tmp_path):
    target = tmp_path / "x.tar"
    order = Order("localhost/x:1", base="pause")
    digest = imagebuild.build(order, ["amd64", "arm64"], target, tmp_path / "c", lambda _: None)
    assert oci.manifest_digest(target) == digest
    assert oci.architectures(target) == ["amd64", "arm64"]
    assert [image.architecture for image in oci.read(target)] == ["amd64", "arm64"]
    assert oci.names(target) == ["localhost/x:1"]


def motley(*arguments):
    return CliRunner().invoke(main, ["image", *map(str, arguments)])


def test_the_command_says_what_is_missing_and_what_to_do(tmp_path, monkeypatch):
    missing = tmp_path / "none"
    assert "-o FILE, or --import" in motley("build", "x").stderr
    assert "Start one: motley up" in motley("list", "--root", missing).stderr
    assert "is no socket" in motley("list", "--address", missing).stderr
    wrong = ("build", "x", "-o", tmp_path / "x.tar", "--image-cache", tmp_path / "c")
    assert "--arch vax is none of" in motley(*wrong, "--arch", "vax").stderr
    assert "NAME=VALUE" in motley(*wrong, "--env", "A").stderr

    def unavailable(*_, **__):
        raise rootfs.Unavailable("apt-get could not download typo")

    (archive,) = images.ensure(tmp_path / "c", lambda _: None, (images.BUSYBOX,)).values()
    assert archive.exists()
    monkeypatch.setattr(rootfs, "download", unavailable)
    told = motley(*wrong, "--package", "typo").stderr
    assert "could not download typo" in told
    assert "apt-cache policy typo" in told
    assert not (tmp_path / "x.tar").exists()


def test_a_file_that_is_no_archive_is_said_to_be_none(tmp_path):
    file = tmp_path / "x.tar"
    file.write_text("no archive")
    with pytest.raises(oci.NotAnArchive, match=r"x\.tar"):
        oci.read(file)
    assert oci.architectures(file) == oci.names(file) == []
