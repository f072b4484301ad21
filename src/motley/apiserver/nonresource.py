"""Paths that are no resources: discovery, health, version, metrics, OpenAPI."""

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import prometheus_client

from motley import __version__
from motley.apiserver import answer, discovery, groupdiscovery, negotiate, openapi
from motley.apiserver.answer import Answer
from motley.apiserver.authn import openid
from motley.apiserver.authn.serviceaccounts import ServiceAccountTokens
from motley.apiserver.request import RequestInfo
from motley.apiserver.verbs.call import in_media_type
from motley.lib import journal

log = journal.get(__name__)

Document = dict[str, Any]

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
# What kube-apiserver does after it began to serve is done here before, so these always say ok; they
# are asked for by name. Those of its parts that do not exist here are not claimed.
BOOT_SEQUENCE = (
    "start-apiextensions-controllers",
    "crd-informer-synced",
    "start-system-namespaces-controller",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "priority-and-fairness-filter",
    "bootstrap-controller",
    "apiservice-registration-controller",
    "kube-apiserver-autoregistration",
)

Check = Callable[[], str]
"""What is wrong, in one line; empty when all is well."""


class NonResource:
    """Answers everything outside `/api/VERSION/…` and `/apis/GROUP/VERSION/…`."""

    def __init__(
        self,
        server_address: str,
        live_checks: Mapping[str, Check],
        ready_checks: Mapping[str, Check],
        tokens: ServiceAccountTokens,
        also: Sequence[Document] = (),
    ) -> None:
        """`also` are resources of the core group that no row of the table has."""
        self._also = also
        self._server_address = server_address
        self._tokens = tokens
        alive = {"ping": _well, **live_checks, **dict.fromkeys(map(_hook, BOOT_SEQUENCE), _well)}
        self._checks = {
            "healthz": alive,
            "livez": alive,
            "readyz": {**alive, **ready_checks},
        }

    def handle(self, info: RequestInfo, headers: Mapping[str, str]) -> Answer:
        """The answer to one request."""
        parts = info.path.strip("/").split("/")
        root = parts[0]
        if root in _HEALTH:
            return self._health(info, parts)
        if root in ("", "index.html"):
            health = (
                f"/{at}/{check}" if check else f"/{at}"
                for at, checks in self._checks.items()
                for check in ("", *checks)
            )
            return answer.of({"paths": discovery.root_paths(health)})
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
                return _aggregated(headers, core=True, also=self._also)
            shown = discovery.versions(self._server_address)
        else:
            found = discovery.resource_list("", parts[1], self._also) if len(parts) == 2 else None
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
        checks = self._checks[root]
        if info.path.endswith("/"):
            return answer.page_not_found()
        if len(parts) > 1:
            return _one(checks.get("/".join(parts[1:])))
        excluded = info.query.get("exclude") or []
        lines = []
        failed = []
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
            elif problem := check():
                # Anybody may ask: what is wrong is for the log, and for who asks one check.
                lines.append(f"[-]{name} failed: reason withheld")
                failed.append(f"{name}: {problem}")
            else:
                lines.append(f"[+]{name} ok")
        if unknown := sorted(set(excluded) - set(checks)):
            listed = ", ".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {listed}")
        if failed:
            log.info("health check failed", endpoint=root, failed=failed)
            return answer.text("\n".join([*lines, f"{root} check failed"]) + "\n", 500)
        if "verbose" not in info.query:
            return answer.text("ok")
        return answer.text("\n".join([*lines, f"{root} check passed"]) + "\n")


def _well() -> str:
    return ""


def _hook(name: str) -> str:
    return f"poststarthook/{name}"


def _one(check: Check | None) -> Answer:
    """One check by its name."""
    if check is None:
        return answer.page_not_found()
    if problem := check():
        return answer.text(f"internal server error: {problem}\n", 500)
    return Answer(b"ok", 200, answer.TEXT)


def _aggregated(headers: Mapping[str, str], *, core: bool, also: Sequence[Document] = ()) -> Answer:
    body, tag = discovery.aggregated(core=core, also=also)
    shown = {"etag": f'"{tag}"', "vary": "Accept"}
    if headers.get("if-none-match", "").strip('"') == tag:
        return Answer(b"", 304, groupdiscovery.AGGREGATED, shown)
    return Answer(body, 200, groupdiscovery.AGGREGATED, shown)
