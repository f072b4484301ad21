import subprocess

import pytest

from motley.ops import rootfs


@pytest.mark.parametrize(
    ("packaged", "placed"),
    [
        ("./bin/busybox", "usr/bin/busybox"),
        ("./sbin/init", "usr/bin/init"),
        ("./usr/sbin/tool", "usr/bin/tool"),
        ("./lib64/ld-linux-x86-64.so.2", "usr/lib64/ld-linux-x86-64.so.2"),
        ("./lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("./usr/lib/python3.11/json/__init__.py", "usr/lib/python3.11/json/__init__.py"),
        ("./", None),
        ("./lib/", None),
        ("./usr/share/doc/x/copyright", None),
        ("./usr/lib/x86_64-linux-gnu/gconv/UTF-16.so", None),
        ("./usr/lib/python3.11/tkinter/__init__.py", None),
        ("./usr/lib/python3.11/lib-dynload/_sqlite3.cpython-311-x86_64-linux-gnu.so", None),
        ("./etc/python3.11/sitecustomize.py", None),
    ],
)
def test_files_of_packages_go_where_a_merged_usr_has_them(packaged, placed):
    assert rootfs.place(packaged) == placed


def test_a_package_is_unpacked_into_the_skeleton(tmp_path):
    package = tmp_path / "package"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "DEBIAN" / "control").write_text(
        "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.org>\n"
        "Description: x\n"
    )
    (package / "bin").mkdir()
    (package / "bin" / "x").write_text("x")
    (package / "bin" / "x").chmod(0o755)
    (package / "bin" / "y").symlink_to("x")
    (package / "usr/share/doc").mkdir(parents=True)
    (package / "usr/share/doc/readme").write_text("long")
    deb = tmp_path / "x.deb"
    subprocess.run(["dpkg-deb", "--build", package, deb], check=True, capture_output=True)
    tree = tmp_path / "tree"
    rootfs.skeleton(tree)
    rootfs.extract(deb, tree)
    assert (tree / "bin/x").stat().st_mode & 0o777 == 0o755
    assert (tree / "usr/bin/y").readlink().name == "x"
    assert not (tree / "usr/share").exists()
    assert (tree / "tmp").stat().st_mode & 0o7777 == 0o1777


def test_a_broken_package_is_refused(tmp_path):
    deb = tmp_path / "broken.deb"
    deb.write_text("no archive")
    with pytest.raises(Exception, match=r"broken\.deb|empty|end of"):
        rootfs.extract(deb, tmp_path)
