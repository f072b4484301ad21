import msgspec

from motley.ops import images


def test_a_changed_recipe_has_another_archive(tmp_path):
    changed = msgspec.structs.replace(images.BUSYBOX, version=2)
    assert images.archive(tmp_path, images.BUSYBOX) != images.archive(tmp_path, changed)


def test_an_image_changes_with_the_one_it_is_built_on(monkeypatch):
    before = images.PYTHON.fingerprint()
    changed = msgspec.structs.replace(images.BUSYBOX, version=2)
    monkeypatch.setitem(images.BY_NAME, "busybox", changed)
    assert images.PYTHON.fingerprint() != before


def test_archives_that_exist_are_not_made_again(tmp_path):
    for recipe in images.RECIPES:
        images.archive(tmp_path, recipe).write_bytes(b"made before")
    found = images.ensure(tmp_path, say=lambda text: (_ for _ in ()).throw(AssertionError(text)))
    assert set(found) == {
        "localhost/motley/pause:1",
        "localhost/motley/busybox:1",
        "localhost/motley/python:1",
    }
