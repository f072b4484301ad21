"""Paths that are no resources: discovery, health, version, metrics, OpenAPI."""

import platform
from collections.abc import Callable, Mapping

import prometheus_client

from motley import __version__
from motley.apiserver import answer, discovery, negotiate, openapi
from motley.apiserver.answer import Answer
from motley.apiserver.authn import openid
from motley.apiserver.authn.serviceaccounts import ServiceAccountTokens
from motley.apiserver.request import RequestInfo
from motley.apiserver.verbs.call import in_media_type

KUBERNETES_MINOR = "37"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # Go's names
VERSION = {
    "major": "1",
    "minor": KUBERNETES_MINOR,
    "emulationMajor": "1",
    "emulationMinor": KUBERNETES_MINOR,
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": str(int(KUBERNETES_MINOR) - 1),
    "gitVersion": f"v1.{KUBERNETES_MINOR}.0+motley",
    "gitCommit": f"motley-{__version__}",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": f"python{platform.python_version()}",
    "compiler": platform.python_implementation().lower(),
    "platform": f"linux/{_ARCHITECTURES.get(platform.machine(), platform.machine())}",
}
_HEALTH = ("healthz", "livez", "readyz")

Check = Callable[[], str]
"""What is wrong, in one line; empty when all is well."""


class NonResource:
    """Answers everything outside `/api/VERSION/…` and `/apis/GROUP/VERSION/…`."""

    def __init__(
        self,
        server_address: str,
        ready_checks: Mapping[str, Check],
        tokens: ServiceAccountTokens,
    ) -> None:
        self._server_address = server_address
        self._tokens = tokens
        self._ready_checks = {"ping": lambda: "", **ready_checks}

    def handle(self, info: RequestInfo, headers: Mapping[str, str]) -> Answer:
        """The answer to one request."""
        parts = info.path.strip("/").split("/")
        root = parts[0]
        if root in _HEALTH:
            return self._health(info, parts)
        if root in ("", "index.html"):
            return answer.of({"paths": discovery.root_paths()})
        if root == "metrics" and len(parts) == 1:
            body = prometheus_client.generate_latest()
            return Answer(body, 200, prometheus_client.CONTENT_TYPE_LATEST)
        if root == "openapi":
            return openapi.handle(info, headers)
        if root == "version" and len(parts) == 1:
            if info.method != "GET":
                raise answer.method_not_allowed()
            return answer.of(VERSION)
        if info.path in openid.PATHS:
            return openid.handle(info, self._tokens, self._server_address)
        if root == "api":
            return self._api(info, parts, headers)
        if root == "apis":
            return self._apis(info, parts, headers)
        return answer.page_not_found()

    def _api(self, info: RequestInfo, parts: list[str], headers: Mapping[str, str]) -> Answer:
        if info.method != "GET":
            raise answer.method_not_allowed()
        wanted = negotiate.accept(headers.get("accept", ""))
        if len(parts) == 1:
            if wanted.transform == "APIGroupDiscoveryList" and wanted.version == "v2":
                return _aggregated(headers, core=True)
            shown = discovery.versions(self._server_address)
        else:
            found = discovery.resource_list("", parts[1]) if len(parts) == 2 else None
            if found is None:
                raise answer.unknown_resource()
            shown = found
        return in_media_type(shown, wanted.media_type)

    def _apis(self, info: RequestInfo, parts: list[str], headers: Mapping[str, str]) -> Answer:
        accept = headers.get("accept", "")
        wanted = negotiate.accept(accept, is_aggregated=len(parts) < 3)
        if len(parts) == 1:
            if wanted.transform == "APIGroupDiscoveryList" and wanted.version == "v2":
                return _aggregated(headers, core=False)
            return in_media_type(discovery.group_list(), wanted.media_type)
        shown = discovery.group(parts[1])
        if shown is None:
            return answer.page_not_found()
        if len(parts) == 2:
            return in_media_type(shown, wanted.media_type)
        if info.method != "GET":
            raise answer.method_not_allowed()
        found = discovery.resource_list(parts[1], parts[2]) if len(parts) == 3 else None
        if found is None:
            raise answer.unknown_resource()
        return in_media_type(found, wanted.media_type)

    def _health(self, info: RequestInfo, parts: list[str]) -> Answer:
        """`/livez` asks whether the process answers, `/readyz` whether it should be used."""
        root = parts[0]
        checks = self._ready_checks if root != "livez" else {"ping": lambda: ""}
        if info.path.endswith("/") or len(parts) > 2:
            return answer.page_not_found()
        if len(parts) == 2:
            return self._check(parts[1])
        excluded = info.query.get("exclude") or ()
        found = {name: check() for name, check in checks.items() if name not in excluded}
        failed = any(found.values())
        if not failed and "verbose" not in info.query:
            return answer.text("ok")
        lines = [
            f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok"
            for name, problem in found.items()
        ]
        lines.append(f"{root} check {'failed' if failed else 'passed'}")
        return answer.text("\n".join(lines) + "\n", 500 if failed else 200)

    def _check(self, name: str) -> Answer:
        """One check by its name. The store goes by `etcd`, which is what monitoring asks for: it
        is well when the caches can follow its log."""
        check = self._ready_checks.get("caches" if name == "etcd" else name)
        if check is None:
            return answer.page_not_found()
        if problem := check():
            return answer.text(f"internal server error: {problem}\n", 500)
        return Answer(b"ok", 200, answer.TEXT)


def _aggregated(headers: Mapping[str, str], *, core: bool) -> Answer:
    body, tag = discovery.aggregated(core=core)
    shown = {"etag": f'"{tag}"', "vary": "Accept"}
    if headers.get("if-none-match", "").strip('"') == tag:
        return Answer(b"", 304, discovery.AGGREGATED, shown)
    return Answer(body, 200, discovery.AGGREGATED, shown)
