"""The load generator: against a real server on loopback."""

import http.server
import json
import threading

import pytest

from motley.ops import loadgen


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append(self.path)
        code = 503 if self.path == "/busy" else 200
        self.send_response(code)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    made.seen = []
    with made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def run(capsys, *arguments):
    code = loadgen.main(list(arguments))
    return code, json.loads(capsys.readouterr().out)


def test_so_many_requests_are_sent_and_measured(server, capsys):
    url = f"http://127.0.0.1:{server.server_port}/a?b=c"
    code, said = run(capsys, url, "-n", "50", "-c", "4")
    assert code == 0
    assert server.seen == ["/a?b=c"] * 50
    assert (said["requests"], said["failed"], said["answers"]) == (50, 0, {"200": 50})
    assert 0 < said["p50Ms"] <= said["p95Ms"] <= said["p99Ms"]
    assert said["perSecond"] > 0


def test_refusals_are_counted_and_it_ends_in_time(server, capsys):
    url = f"http://127.0.0.1:{server.server_port}/busy"
    code, said = run(capsys, url, "-s", "0.2", "-c", "2", "--think-ms", "5")
    assert code == 1
    assert said["failed"] == said["requests"] == said["answers"]["503"] > 0
    assert said["seconds"] < 2


def test_a_server_that_is_not_there_costs_no_core(capsys):
    code, said = run(capsys, "http://127.0.0.1:1/", "-s", "0.3", "-c", "1")
    assert code == 1
    assert said["answers"].keys() == {"ConnectionRefusedError"}
    assert said["requests"] < 10


def test_what_is_no_url_is_refused(capsys):
    with pytest.raises(SystemExit):
        loadgen.main(["ftp://x"])
    assert "is no http URL" in capsys.readouterr().err


def test_percentiles_are_of_what_there_is():
    values = [float(n) for n in range(1, 101)]
    assert loadgen.percentile(values, 0.5) == 50
    assert loadgen.percentile(values, 0.99) == 99
    assert loadgen.percentile([], 0.5) == 0
