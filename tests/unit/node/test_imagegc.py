"""Which images go, and which never do."""

from motley.node.cri.values import Image
from motley.node.imagegc import Record, is_kept, to_remove


def _image(name, size=10, *, is_pinned=False):
    return Image(f"sha256:{name}", (f"example.test/{name}:1",), (), size, None, "", is_pinned)


def _record(name, used_at, *, seen_at=0.0, **image):
    return Record(_image(name, **image), seen_at, used_at)


def _chosen(*records, in_use=(), excess=1e9, now=1000.0, min_age_s=120.0):
    in_use = {f"sha256:{name}" for name in in_use}
    return [i.id[7:] for i in to_remove(records, in_use, excess, now, min_age_s)]


def test_the_longest_unused_go_first_and_no_more_than_needed():
    records = [_record("new", 900), _record("old", 100), _record("middle", 500)]
    assert _chosen(*records) == ["old", "middle", "new"]
    assert _chosen(*records, excess=15) == ["old", "middle"]
    assert _chosen(*records, excess=0) == []


def test_images_in_use_young_pinned_or_only_here_stay():
    only_here = Record(Image("sha256:own", ("localhost/app:1",), (), 10, None, ""), 0.0, 0.0)
    records = [
        _record("used", 100),
        _record("young", 950, seen_at=900),
        _record("pinned", 100, is_pinned=True),
        only_here,
        _record("free", 100),
    ]
    assert _chosen(*records, in_use=["used"]) == ["free"]
    assert is_kept(only_here.image)
