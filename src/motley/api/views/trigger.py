"""Triggers, as the serverless component reads them."""

from typing import Any, ClassVar

import msgspec

from motley.api.views.base import Object, View


class EventSource(View):
    """Objects whose changes call a function."""

    api_version: str = "v1"
    kind: str = ""
    label_selector: str = ""
    types: list[str] = []


class HTTPSource(View):
    """Requests that call a function."""

    host: str = ""
    path: str = "/"


class TriggerSpec(View):
    """What calls, and what is called."""

    function: str = ""
    workflow: str = ""
    arg: Any = None
    schedule: str = ""
    time_zone: str = ""
    starting_deadline_seconds: int = 300
    event: EventSource | None = None
    http: HTTPSource | None = None
    suspend: bool = False


class TriggerStatus(View):
    """How far it is."""

    last_time: str = ""
    last_invocation: str = ""
    resource_version: str = ""
    observed_generation: int = 0
    conditions: list[dict[str, Any]] = []


class Trigger(Object):
    """What calls a Function or a Workflow without anybody asking."""

    API_VERSION: ClassVar[str] = "motley.io/v1"
    KIND: ClassVar[str] = "Trigger"
    PLURAL: ClassVar[str] = "triggers"

    spec: TriggerSpec = msgspec.field(default_factory=TriggerSpec)
    status: TriggerStatus = msgspec.field(default_factory=TriggerStatus)
