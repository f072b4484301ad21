"""A pod's server: says its name by HTTP and by UDP; runs inside a network namespace."""

import http.server
import socket
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"{sys.argv[1]} {self.client_address[0]}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def echo_udp(sock):
    while True:
        _, client = sock.recvfrom(2048)
        sock.sendto(sys.argv[1].encode(), client)


udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("0.0.0.0", 8080))
server = Server(("0.0.0.0", 8080), Handler)
threading.Thread(target=echo_udp, args=(udp,), daemon=True).start()
print("ready", flush=True)
server.serve_forever()
