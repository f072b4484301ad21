"""The text nginx gets, as golden files, and what nginx itself says to it.

After a change that is meant: UPDATE_GOLDEN=1 .venv/bin/pytest tests/unit/network -k golden
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from motley.network.paths import nginx, nginxconf
from motley.network.paths.nginxconf import Listening
from motley.network.paths.sites import Certificate, Location, Owner, Plan, Settings, Site

GOLDEN = Path(__file__).parents[2] / "data" / "paths"
ROUTE, INGRESS = Owner("Route", "default", "r"), Owner("Ingress", "shop", "i")
STRIPPED = Settings(strip_prefix=True)
WEB, NEW = ("10.6.1.1:80",), ("10.6.1.2:80",)


def listening(directory="/gateway", **more):
    where = {"http": [("127.0.0.1", 10280)], "https": [("127.0.0.1", 10281)], **more}
    return Listening(Path(directory), **where)


PLANS = {
    "route": Plan(
        [
            Site(
                "hello.world.minik8s",
                [
                    Location("/new/world", "prefix", ROUTE, NEW, STRIPPED),
                    Location("/world", "prefix", ROUTE, WEB, STRIPPED),
                    Location("/later", "prefix", ROUTE, (), STRIPPED),
                ],
            )
        ]
    ),
    "ingress": Plan(
        [
            Site("", [Location("/", "prefix", INGRESS, WEB)]),
            Site("*.wild.example", [Location("/ä b", "prefix", INGRESS, WEB, STRIPPED)]),
            Site(
                "shop.example",
                [
                    Location("/", "prefix", INGRESS, WEB),
                    Location("/a", "exact", INGRESS, NEW, Settings(body_size="8m")),
                    Location("/a", "prefix", INGRESS, WEB, Settings(read_timeout_s=300)),
                    Location("/many", "prefix", INGRESS, (*WEB, *NEW)),
                ],
            ),
        ]
    ),
    "tls": Plan(
        [
            Site(
                "safe.example",
                [Location("/", "prefix", INGRESS, WEB, Settings(ssl_redirect=True))],
                Certificate("/gateway/tls/a.crt", "/gateway/tls/a.key"),
            )
        ]
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_configuration_is_as_the_golden_file_has_it(name):
    text, _ = nginxconf.render(PLANS[name], listening())
    path = GOLDEN / f"{name}.conf"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", ["route", "ingress"])
def test_nginx_accepts_it(name, tmp_path):
    (tmp_path / "tmp").mkdir()
    text, _ = nginxconf.render(PLANS[name], listening(tmp_path, http=[("127.0.0.1", 0)]))
    text = re.sub(r"listen 127.0.0.1:0\b", "listen 127.0.0.1:18099", text)
    (tmp_path / "nginx.conf").write_text(text)
    words = [nginx.program(), "-t", "-q", "-c", tmp_path / "nginx.conf"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_generation_follows_the_configuration():
    first = nginxconf.render(PLANS["route"], listening())
    assert nginxconf.render(PLANS["route"], listening()) == first
    assert first[1] in first[0]
    assert nginxconf.render(PLANS["tls"], listening())[1] != first[1]
    assert nginxconf.render(PLANS["route"], listening(workers=2))[1] != first[1]


def test_strings_cannot_end_their_quotes():
    assert nginxconf.quoted('a"; return 200 \\') == '"a\\"; return 200 \\\\"'
