"""A pod's server that tells what reached it; an upgraded connection gets its bytes back."""

import http.server
import json
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers.get("Upgrade") == "mirror":
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: mirror\r\n")
            self.wfile.write(b"Connection: Upgrade\r\n\r\n")
            self.wfile.write(self.rfile.readline())
            self.close_connection = True
            return
        size = len(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        told = {"name": sys.argv[1], "path": self.path, "headers": headers, "size": size}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


server = Server(("0.0.0.0", int(sys.argv[2])), Handler)
print("ready", flush=True)
server.serve_forever()
