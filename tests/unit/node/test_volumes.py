"""Files of volumes: what they hold, how they change, how they go."""

import os
import stat

import pytest

from motley.api.views.core import ConfigMap, Secret
from motley.api.views.pod import Pod
from motley.lib.clock import SYSTEM
from motley.node.environment import ConfigError
from motley.node.volumes import atomic, mounts, payload
from motley.node.volumes.payload import File
from motley.node.volumes.podvolumes import PodVolumes, VolumeError


class Lookup:
    def __init__(self, **data):
        self.data = data

    def config_map(self, name):
        found = self.data.get(name)
        return None if found is None else ConfigMap.of({"data": found, "binaryData": {"b": "AAE="}})

    def secret(self, name):
        found = self.data.get(name)
        return None if found is None else Secret.of({"data": found})


def pod(volume=None, mount=None, **spec):
    volumes = [{"name": "v", **volume}] if volume else []
    container = {"name": "c", "volumeMounts": [{"name": "v", **mount}] if mount else []}
    return Pod.of(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "web"}},
            "spec": {"volumes": volumes, "containers": [container], **spec},
        }
    )


def files(volume, lookup):
    found = pod(volume)
    return payload.of(found.spec.volumes[0], found, lookup, {"status.podIP": "1.2.3.4"}, {})


def test_a_configmap_is_a_file_per_key():
    found = files({"configMap": {"name": "m"}}, Lookup(m={"a": "1"}))
    assert found == {"a": File(b"1", 0o644), "b": File(b"\x00\x01", 0o644)}


def test_items_choose_rename_and_set_modes():
    items = [{"key": "a", "path": "deep/x", "mode": 0o400}]
    found = files({"configMap": {"name": "m", "items": items}}, Lookup(m={"a": "1", "z": "2"}))
    assert found == {"deep/x": File(b"1", 0o400)}


def test_missing_objects_and_keys_are_errors_unless_optional():
    with pytest.raises(ConfigError, match='configmap "m" not found'):
        files({"configMap": {"name": "m"}}, Lookup())
    assert files({"configMap": {"name": "m", "optional": True}}, Lookup()) == {}
    items = [{"key": "none", "path": "x"}]
    with pytest.raises(ConfigError, match="non-existent config key: none"):
        files({"configMap": {"name": "m", "items": items}}, Lookup(m={}))


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b", "..data", ""])
def test_a_path_cannot_leave_the_volume(path):
    items = [{"key": "a", "path": path}]
    with pytest.raises(ConfigError, match="invalid path"):
        files({"configMap": {"name": "m", "items": items}}, Lookup(m={"a": "1"}))


def test_projected_volumes_put_sources_together():
    sources = [
        {"configMap": {"name": "m", "items": [{"key": "a", "path": "a"}]}},
        {"secret": {"name": "s"}},
        {
            "downwardAPI": {
                "items": [
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                    {"path": "ip", "fieldRef": {"fieldPath": "status.podIP"}},
                ]
            }
        },
    ]
    found = files({"projected": {"sources": sources}}, Lookup(m={"a": "1"}, s={"k": "Mg=="}))
    assert found is not None
    assert {name: f.content for name, f in found.items()} == {
        "a": b"1",
        "k": b"2",
        "labels": b'app="web"',
        "ip": b"1.2.3.4",
    }


def test_a_swap_shows_all_new_files_at_once(tmp_path):
    assert atomic.write(tmp_path, {"a": File(b"1", 0o644), "d/b": File(b"1", 0o600)}, clock=SYSTEM)
    before = os.readlink(tmp_path / "..data")
    opened = os.open(tmp_path / "..data", os.O_RDONLY)
    assert (tmp_path / "a").read_text() == "1"
    assert stat.S_IMODE((tmp_path / "d/b").stat().st_mode) == 0o600
    assert atomic.write(tmp_path, {"a": File(b"2", 0o644), "c": File(b"2", 0o644)}, clock=SYSTEM)
    assert os.readlink(tmp_path / "..data") != before
    assert {p.name for p in tmp_path.iterdir() if not p.name.startswith("..")} == {"a", "c"}
    assert (tmp_path / "a").read_text() == "2"
    assert len([p for p in tmp_path.iterdir() if p.name.startswith("..")]) == 2
    os.close(opened)


def test_writing_the_same_again_changes_nothing(tmp_path):
    same = {"a": File(b"1", 0o644)}
    assert atomic.write(tmp_path, same, clock=SYSTEM)
    inode = (tmp_path / "..data").lstat().st_ino
    assert not atomic.write(tmp_path, same, clock=SYSTEM)
    assert (tmp_path / "..data").lstat().st_ino == inode


def test_empty_dirs_are_open_to_all_and_survive_a_second_setup(tmp_path):
    volumes = PodVolumes(tmp_path)
    wanted = pod({"emptyDir": {}}, {"mountPath": "/v"})
    volumes.setup(wanted, Lookup(), {}, {})
    (mount,) = volumes.mounts(wanted, wanted.spec.containers[0], {})
    assert stat.S_IMODE(os.stat(mount.host_path).st_mode) == 0o777
    (tmp_path / "pods/u/volumes/empty-dir/v/kept").write_text("x")
    volumes.setup(wanted, Lookup(), {}, {})
    assert (tmp_path / "pods/u/volumes/empty-dir/v/kept").exists()
    volumes.remove("u")
    assert volumes.pods() == set()


def test_configmap_volumes_are_refreshed_and_kept_when_the_object_goes(tmp_path):
    volumes = PodVolumes(tmp_path)
    wanted = pod({"configMap": {"name": "m"}}, {"mountPath": "/v"})
    volumes.setup(wanted, Lookup(m={"a": "1"}), {}, {})
    path = tmp_path / "pods/u/volumes/configmap/v/a"
    assert volumes.refresh(wanted, Lookup(m={"a": "2"}), {}, {})
    assert path.read_text() == "2"
    assert not volumes.refresh(wanted, Lookup(), {}, {})
    assert path.read_text() == "2"
    (mount,) = volumes.mounts(wanted, wanted.spec.containers[0], {})
    assert mount.read_only


def test_an_unknown_kind_of_volume_is_an_error_that_names_it(tmp_path):
    wanted = pod({"nfs": {"server": "x", "path": "/"}})
    with pytest.raises(VolumeError, match='"v" is of a kind'):
        PodVolumes(tmp_path).setup(wanted, Lookup(), {}, {})


def test_host_paths_are_checked_and_made_as_asked(tmp_path):
    volumes = PodVolumes(tmp_path)
    made = tmp_path / "made"
    volumes.setup(
        pod({"hostPath": {"path": str(made), "type": "DirectoryOrCreate"}}), Lookup(), {}, {}
    )
    assert made.is_dir()
    with pytest.raises(VolumeError, match="is not a File"):
        volumes.setup(pod({"hostPath": {"path": str(made), "type": "File"}}), Lookup(), {}, {})
    volumes.remove("u")
    assert made.is_dir(), "a host's directory is never removed"


@pytest.mark.parametrize("sub_path", ["../out", "/etc", "a/../../b"])
def test_a_sub_path_must_stay_inside(tmp_path, sub_path):
    volumes = PodVolumes(tmp_path)
    wanted = pod({"emptyDir": {}}, {"mountPath": "/v", "subPath": sub_path})
    volumes.setup(wanted, Lookup(), {}, {})
    with pytest.raises(ConfigError, match="inside the volume"):
        volumes.mounts(wanted, wanted.spec.containers[0], {})


def test_a_sub_path_that_is_a_link_out_is_refused(tmp_path):
    volumes = PodVolumes(tmp_path)
    wanted = pod({"emptyDir": {}}, {"mountPath": "/v", "subPath": "trap"})
    volumes.setup(wanted, Lookup(), {}, {})
    (tmp_path / "pods/u/volumes/empty-dir/v/trap").symlink_to("/etc")
    with pytest.raises(ConfigError, match="leads out"):
        volumes.mounts(wanted, wanted.spec.containers[0], {})


def test_a_mount_of_no_volume_is_an_error(tmp_path):
    wanted = pod(None, {"mountPath": "/v"})
    with pytest.raises(ConfigError, match="names no volume"):
        PodVolumes(tmp_path).mounts(wanted, wanted.spec.containers[0], {})


def test_removing_a_pod_does_not_follow_links(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    volumes = PodVolumes(tmp_path)
    volumes.setup(pod({"emptyDir": {}}), Lookup(), {}, {})
    (tmp_path / "pods/u/volumes/empty-dir/v/link").symlink_to(outside)
    volumes.remove("u")
    assert (outside / "precious").exists()


def test_mounts_below_a_directory_are_found_deepest_first(tmp_path):
    info = "\n".join(
        f"1 1 0:1 / {path} rw - tmpfs tmpfs rw"
        for path in (tmp_path / "a", tmp_path / "a/b", "/elsewhere", f"{tmp_path}x")
    )
    assert mounts.below(tmp_path, info) == [tmp_path / "a/b", tmp_path / "a"]


@pytest.mark.root
def test_memory_volumes_and_secrets_are_tmpfs_and_are_unmounted(tmp_path):
    volumes = PodVolumes(tmp_path)
    wanted = Pod.of(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {
                "volumes": [
                    {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                    {"name": "s", "secret": {"secretName": "s"}},
                ],
                "containers": [
                    {
                        "name": "c",
                        "volumeMounts": [
                            {"name": "m", "mountPath": "/m", "subPath": "deep"},
                            {"name": "s", "mountPath": "/k", "subPath": "k"},
                        ],
                    }
                ],
            },
        }
    )
    try:
        volumes.setup(wanted, Lookup(s={"k": "Mg=="}), {}, {})
        found = volumes.mounts(wanted, wanted.spec.containers[0], {})
        assert os.path.ismount(tmp_path / "pods/u/volumes/empty-dir/m")
        assert os.statvfs(tmp_path / "pods/u/volumes/empty-dir/m").f_blocks * 4096 == 1 << 20
        assert os.path.ismount(tmp_path / "pods/u/volumes/secret/s")
        with open(found[1].host_path) as file:
            assert file.read() == "2"
    finally:
        volumes.remove("u")
    assert mounts.below(tmp_path) == []
