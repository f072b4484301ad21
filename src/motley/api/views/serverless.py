"""Functions and their invocations, as the serverless component reads them."""

from typing import Any, ClassVar

import msgspec

from motley.api.views.base import Object, View

API_VERSION = "motley.io/v1"


class KeyRef(View):
    """One key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""


class CodeFrom(View):
    """Where a text is, when it is not in the Function."""

    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


class EnvVar(View):
    """An environment variable."""

    name: str = ""
    value: str = ""
    value_from: CodeFrom | None = None


class FunctionSpec(View):
    """What the user wants; the defaults are the schema's."""

    version: str = "v2"
    runtime: str = "python3"
    code: str | None = None
    files: dict[str, str] = {}
    archive: str | None = None
    code_from: CodeFrom | None = None
    handler: str = "run"
    left: str = ""
    right: str = ""
    requirements: Any = None
    pre_run: str = ""
    env: list[EnvVar] = []
    resources: dict[str, Any] = {}
    timeout_seconds: int = 60
    min_instances: int = 0
    max_instances: int = 10
    initial_instances: int = 0
    concurrency: int = 4
    target_rate: int = 0
    idle_seconds: int = 60
    image: str = ""
    node_selector: dict[str, str] = {}
    address: str = ""
    public: bool = False


class FunctionStatus(View):
    """What the controller reports."""

    url: str = ""
    address: str = ""
    instances: int = 0
    starting: int = 0
    revision: str = ""
    message: str = ""
    observed_generation: int = 0


class Function(Object):
    """Code that is called."""

    API_VERSION: ClassVar[str] = API_VERSION
    KIND: ClassVar[str] = "Function"
    PLURAL: ClassVar[str] = "functions"

    spec: FunctionSpec = msgspec.field(default_factory=FunctionSpec)
    status: FunctionStatus = msgspec.field(default_factory=FunctionStatus)

    @property
    def has_branches(self) -> bool:
        """Does another Function follow this one?"""
        return any(name not in ("", "RETURN") for name in (self.spec.left, self.spec.right))


class InvocationSpec(View):
    """What is to be called."""

    function: str = ""
    workflow: str = ""
    arg: Any = None
    timeout_seconds: int = 3600
    idempotency_key: str = ""
    callback_url: str = msgspec.field(default="", name="callbackURL")
    ttl_seconds_after_finished: int = 3600
    max_steps: int = 1000
    cancel: bool = False


class InvocationStatus(View):
    """How far it is; steps stay plain documents, their writer knows more than their readers."""

    phase: str = ""
    result: Any = None
    error: Any = None
    message: str = ""
    start_time: str | None = None
    completion_time: str | None = None
    callback: Any = None
    steps: list[dict[str, Any]] = []


class Invocation(Object):
    """One accepted call, durable."""

    API_VERSION: ClassVar[str] = API_VERSION
    KIND: ClassVar[str] = "Invocation"
    PLURAL: ClassVar[str] = "invocations"

    spec: InvocationSpec = msgspec.field(default_factory=InvocationSpec)
    status: InvocationStatus = msgspec.field(default_factory=InvocationStatus)

    @property
    def is_finished(self) -> bool:
        """Has it ended, however?"""
        return self.status.phase in ("Succeeded", "Failed", "Cancelled")
