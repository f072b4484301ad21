"""A real browser, driven over the W3C WebDriver protocol: Debian's chromium and its chromedriver.

Everything it keeps lies in a directory of its own, it resolves no name and speaks to loopback only,
and nothing of it is left when the `with` ends, however it ends.
"""

import base64
import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which tests, run by root, cannot have
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-crash-reporter",
    "--disable-breakpad",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--no-proxy-server",
    "--password-store=basic",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's own word for a reference
_STARTED = re.compile(r"started successfully on port (\d+)")
_DEADLINE_S = 30.0
_TRIES = 5
T = TypeVar("T")
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class BrowserError(Exception):
    """What the browser says it cannot do; `kind` is the protocol's word for it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Element:
    """Something on the page."""

    def __init__(self, browser: "Browser", reference: str) -> None:
        self._browser = browser
        self.reference = reference

    @property
    def text(self) -> str:
        """What a reader sees of it."""
        return str(self._ask("GET", "text"))

    def attribute(self, name: str) -> str | None:
        found = self._ask("GET", f"attribute/{name}")
        return None if found is None else str(found)

    def click(self) -> None:
        self._ask("POST", "click", {})

    def type(self, text: str) -> None:
        self._ask("POST", "value", {"text": text})

    def hover(self, x: int = 0, y: int = 0) -> None:
        """Bring the pointer there: pixels from the element's middle."""
        self._point("mouse", x, y)

    def tap(self, x: int = 0, y: int = 0) -> None:
        """Touch it with a finger, and leave the finger there."""
        self._point("touch", x, y, {"type": "pointerDown", "button": 0})

    def _point(self, kind: str, x: int, y: int, *more: dict[str, Any]) -> None:
        origin = {_ELEMENT: self.reference}
        move = {"type": "pointerMove", "duration": 0, "x": x, "y": y, "origin": origin}
        source = {"type": "pointer", "id": kind, "parameters": {"pointerType": kind}}
        self._browser.ask("POST", "actions", {"actions": [{**source, "actions": [move, *more]}]})

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._browser.ask(method, f"element/{self.reference}/{path}", body)


class Browser:
    """One window."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A command of the protocol. Raises BrowserError."""
        return _ask(method, f"{self._url}/{path}", body)

    def go(self, url: str) -> None:
        """Open a page and wait until it is there."""
        self.ask("POST", "url", {"url": url})

    def find(self, css: str) -> Element:
        """The first of its kind. Raises BrowserError."""
        return self._element(self.ask("POST", "element", {"using": "css selector", "value": css}))

    def find_all(self, css: str) -> list[Element]:
        """Everything of a kind."""
        found = self.ask("POST", "elements", {"using": "css selector", "value": css})
        return [self._element(one) for one in found]

    def text(self, css: str = "body") -> str:
        """What a reader sees of an element."""
        return self._on(css, lambda element: element.text)

    def click(self, css: str) -> None:
        self._on(css, Element.click)

    def type(self, css: str, text: str) -> None:
        self._on(css, lambda element: element.type(text))

    def hover(self, css: str, x: int = 0, y: int = 0) -> None:
        self._on(css, lambda element: element.hover(x, y))

    def tap(self, css: str, x: int = 0, y: int = 0) -> None:
        self._on(css, lambda element: element.tap(x, y))

    def _on(self, css: str, action: Callable[[Element], T]) -> T:
        """Do something with an element, which a page that refreshes itself may take away between
        finding and doing: then it is looked for again."""
        for _ in range(_TRIES):
            try:
                return action(self.find(css))
            except BrowserError as error:
                if error.kind != "stale element reference":
                    raise
        return action(self.find(css))

    def paste(self, css: str, text: str) -> None:
        """Put a long text in at once, where typing it would take seconds."""
        self.click(css)
        self.devtools("Input.insertText", {"text": text})

    def run(self, js: str, *arguments: Any) -> Any:
        """The value that a function's body returns; it has `arguments`."""
        return self.ask("POST", "execute/sync", {"script": js, "args": list(arguments)})

    def before_every_page(self, js: str) -> None:
        """Run this in each page from now on, before its own scripts."""
        self.devtools("Page.addScriptToEvaluateOnNewDocument", {"source": js})

    def devtools(self, command: str, parameters: Any) -> Any:
        """What WebDriver has no word for."""
        return self.ask("POST", "goog/cdp/execute", {"cmd": command, "params": parameters})

    def offline(self, is_offline: bool) -> None:
        """Pull the plug, or put it in again."""
        line = {"offline": is_offline, "latency": 0, "throughput": -1}
        self.ask("POST", "chromium/network_conditions", {"network_conditions": line})

    @property
    def url(self) -> str:
        """Where we are."""
        return str(self.ask("GET", "url"))

    @property
    def alert(self) -> str | None:
        """What a dialog says that covers the page; None without one."""
        try:
            return str(self.ask("GET", "alert/text"))
        except BrowserError as error:
            if error.kind != "no such alert":
                raise
            return None

    def log(self) -> list[str]:
        """What the console has said since the last question."""
        return [str(one["message"]) for one in self.ask("POST", "se/log", {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        """The window, as a PNG."""
        path.write_bytes(base64.b64decode(self.ask("GET", "screenshot")))

    def eventually(self, condition: Callable[[], Any], what: str, timeout_s: float = 15.0) -> Any:
        """Poll until the condition holds; its value. What is not there (yet) does not hold."""
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(BrowserError):
                if found := condition():
                    return found
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not within {timeout_s} s: {what}; {self.url} shows:\n{self.text()}"
                )
            select.select([], [], [], 0.05)

    def _element(self, found: dict[str, str]) -> Element:
        return Element(self, found[_ELEMENT])


@contextlib.contextmanager
def browser(
    width: int = 1280,
    height: int = 800,
    *,
    accepts_any_certificate: bool = False,
    flags: Sequence[str] = (),
) -> Iterator[Browser]:
    """A browser with nothing in it, for as long as the `with` lasts."""
    driver = shutil.which("chromedriver")
    assert driver is not None, "no chromedriver: run `make setup`"
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as home:
        with (Path(home) / "driver.log").open("wb") as log:
            process = subprocess.Popen(
                [driver, "--port=0"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"},
                start_new_session=True,  # a group of its own, so that it can end as a whole
            )
        try:
            url = f"http://127.0.0.1:{_port(process, Path(home) / 'driver.log')}/session"
            options = {
                "args": [
                    *FLAGS,
                    f"--user-data-dir={home}/profile",
                    f"--window-size={width},{height}",
                    *flags,
                ],
                "binary": shutil.which("chromium"),
            }
            wanted = {
                "browserName": "chrome",
                "acceptInsecureCerts": accepts_any_certificate,
                "unhandledPromptBehavior": "ignore",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL"},
            }
            made = _ask("POST", url, {"capabilities": {"alwaysMatch": wanted}})
            try:
                yield Browser(f"{url}/{made['sessionId']}")
            finally:
                with contextlib.suppress(BrowserError, OSError):
                    _ask("DELETE", f"{url}/{made['sessionId']}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    deadline = time.monotonic() + _DEADLINE_S
    while not (found := _STARTED.search(log.read_text())):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, "chromedriver does not start"
        select.select([], [], [], 0.02)
    return int(found.group(1))


def _ask(method: str, url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with _direct.open(request, timeout=_DEADLINE_S) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        with error:
            told = json.load(error)["value"]
        raise BrowserError(told["error"], told["message"]) from None
