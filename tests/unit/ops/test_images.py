import gzip
import io
import tarfile

import msgspec
import pytest

from motley.ops import images, oci, rootfs


def test_a_changed_recipe_has_another_archive(tmp_path):
    changed = msgspec.structs.replace(images.BUSYBOX, version=2)
    assert images.archive(tmp_path, images.BUSYBOX) != images.archive(tmp_path, changed)


def test_an_image_changes_with_the_one_it_is_built_on(monkeypatch):
    before = images.PYTHON.fingerprint(), images.LOAD.fingerprint()
    changed = msgspec.structs.replace(images.BUSYBOX, version=2)
    monkeypatch.setitem(images.BY_NAME, "busybox", changed)
    after = images.PYTHON.fingerprint(), images.LOAD.fingerprint()
    assert not set(before) & set(after)


def test_an_image_changes_with_its_files():
    changed = msgspec.structs.replace(images.LOAD, files={"usr/local/bin/load": "#!/bin/sh\n"})
    assert changed.fingerprint() != images.LOAD.fingerprint()


def test_archives_that_exist_are_not_made_again(tmp_path):
    for recipe in images.RECIPES:
        images.archive(tmp_path, recipe).write_bytes(b"made before")
    found = images.ensure(tmp_path, say=lambda text: (_ for _ in ()).throw(AssertionError(text)))
    assert set(found) == {
        "localhost/motley/pause:1",
        "localhost/motley/busybox:1",
        "localhost/motley/python:1",
    }


@pytest.fixture
def packages(monkeypatch):
    """No package is fetched; what was asked for, and for which architecture."""
    asked = []

    def download(names, into, apt=None, *, dependencies=False):
        asked.append((tuple(names), apt.foreign if apt else "", dependencies))
        return []

    monkeypatch.setattr(rootfs, "download", download)
    return asked


def contents(archive):
    (image,) = oci.read(archive)
    found = {}
    for layer in image.layers:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer.data))) as opened:
            for member in opened:
                data = opened.extractfile(member) if member.isreg() else None
                found[member.name] = (member.mode, data.read() if data else b"")
    return image, found


def test_a_recipe_is_laid_over_the_one_it_is_built_on(tmp_path, packages):
    (archive,) = images.ensure(tmp_path, print, (images.NGINX,)).values()
    image, found = contents(archive)
    assert len(image.layers) == 2
    assert found["tmp"][0] == 0o1777
    assert b"conf.d" in found["etc/nginx/nginx.conf"][1]
    assert image.config["Entrypoint"][0] == "nginx"
    assert packages == [(images.BUSYBOX.packages, "", False), (images.NGINX.packages, "", False)]


def test_another_architecture_is_fetched_and_kept_apart(tmp_path, packages):
    other = "arm64" if images.architecture() == "amd64" else "amd64"
    made = images.ensure(tmp_path, print, (images.PAUSE,), other)
    (archive,) = made.values()
    assert packages == [(images.PAUSE.packages, other, False)]
    assert oci.architectures(archive) == [other]
    assert archive != images.archive(tmp_path, images.PAUSE)


def test_archives_of_older_recipes_go_and_others_stay(tmp_path, packages):
    arch = images.architecture()
    old = tmp_path / f"pause-{arch}-000000000000.tar"
    others = [tmp_path / f"pause-x{arch}-000000000000.tar", tmp_path / "mine.tar"]
    for path in (old, *others):
        path.touch()
    images.ensure(tmp_path, print, (images.PAUSE,))
    assert not old.exists()
    assert all(path.exists() for path in others)
