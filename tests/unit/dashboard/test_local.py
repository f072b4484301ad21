"""The dashboard of one person: credentials of a kubeconfig, and what is said when they are gone."""

import pytest

from motley.client.kubeconfig import Config, ConfigError, Impersonation
from motley.dashboard import local

from .conftest import Browser, running


def test_a_token_file_is_read_again_and_its_loss_is_said_on_the_page(api, tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    api.tokens = {"Bearer first"}
    with running(local.server(Config(server=api.url, token_file=file))) as server:
        browser = Browser(server)
        browser.get(local.opening(server).removeprefix(server.url))
        assert browser.get("/")[0] == 200
        api.tokens = {"Bearer second"}
        file.write_text("second\n")
        assert browser.get("/")[0] == 200
        file.unlink()
        code, page = browser.get("/")
        assert code == 502
        assert "credentials cannot be had" in page


@pytest.mark.parametrize(
    "more",
    [
        {"impersonate": Impersonation("somebody")},
        {"proxy_url": "http://proxy.example"},
        {"tls_server_name": "other.example"},
    ],
)
def test_what_it_cannot_do_is_refused_before_it_serves(more):
    with pytest.raises(ConfigError, match="the dashboard"):
        local.server(Config(server="https://127.0.0.1:1", **more))
