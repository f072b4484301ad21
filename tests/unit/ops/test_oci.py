import hashlib
import io
import os
import tarfile

import msgspec
import pytest

from motley.ops import oci


def tree(path):
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "tool").write_bytes(b"#!/bin/sh\n")
    (path / "bin" / "tool").chmod(0o755)
    (path / "bin" / "sh").symlink_to("tool")
    (path / "tmp").mkdir()
    (path / "tmp").chmod(0o1777)
    return path


def image(path, layers):
    oci.write(path, layers, name="localhost/x:1", architecture="amd64", config={"Cmd": ["sh"]})
    with tarfile.open(path) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()}


def test_the_same_files_give_the_same_archive_at_any_time(tmp_path):
    one, two = tree(tmp_path / "one"), tree(tmp_path / "two")
    os.utime(two / "bin" / "tool", (1, 1))
    image(tmp_path / "1.tar", [oci.layer(one)])
    image(tmp_path / "2.tar", [oci.layer(two)])
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()


def test_every_blob_is_named_by_its_digest_and_found_from_the_index(tmp_path):
    files = image(tmp_path / "x.tar", [oci.layer(tree(tmp_path / "tree"))])
    for name, data in files.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"

    def blob(described):
        data = files["blobs/sha256/" + described["digest"].removeprefix("sha256:")]
        assert len(data) == described["size"]
        return data

    (described,) = msgspec.json.decode(files["index.json"])["manifests"]
    assert described["annotations"]["io.containerd.image.name"] == "localhost/x:1"
    assert described["digest"] == oci.manifest_digest(tmp_path / "x.tar")
    manifest = msgspec.json.decode(blob(described))
    config = msgspec.json.decode(blob(manifest["config"]))
    assert (config["architecture"], config["os"]) == ("amd64", "linux")
    assert config["config"] == {"Cmd": ["sh"]}
    (layer,) = manifest["layers"]
    with tarfile.open(fileobj=io.BytesIO(blob(layer))) as archive:
        members = {m.name: m for m in archive.getmembers()}
    assert members["bin/tool"].mode == 0o755
    assert members["bin/sh"].linkname == "tool"
    assert members["tmp"].mode == 0o1777
    assert {m.uid for m in members.values()} == {0}


def test_hard_links_name_a_file_of_the_image(tmp_path):
    made = tree(tmp_path / "tree")
    (made / "bin/again").hardlink_to(made / "bin/tool")

    oci.extract(oci.layer(made), tmp_path / "out")

    assert (tmp_path / "out/bin/again").samefile(tmp_path / "out/bin/tool")


def test_the_diff_id_is_the_digest_of_the_uncompressed_layer(tmp_path):
    layer = oci.layer(tree(tmp_path / "tree"))
    import gzip

    assert layer.diff_id == oci.digest(gzip.decompress(layer.data))


def test_one_architecture_of_an_archive_can_be_taken_alone(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    both = tmp_path / "both.tar"
    layers = [oci.layer(tree)]
    made = [oci.Image(arch, layers, {"Cmd": [arch]}) for arch in ("amd64", "arm64")]
    oci.write_all(both, made, "localhost/x:1")
    (tmp_path / "out").mkdir()
    alone = oci.only(both, "arm64", tmp_path / "out")
    assert oci.architectures(alone) == ["arm64"]
    assert oci.names(alone) == ["localhost/x:1"]
    (image,) = oci.read(alone)
    assert image.config == {"Cmd": ["arm64"]}
    with pytest.raises(oci.NotAnArchive, match="nothing for riscv64"):
        oci.only(both, "riscv64", tmp_path / "out")
