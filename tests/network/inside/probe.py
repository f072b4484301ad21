"""A client that stays: asks what it is told on stdin, a line each, and says what came of it.

tcp ADDRESS PORT     the server's name, or `no`
udp ADDRESS PORT     likewise
name ADDRESS NAME    the address that a name server tells, or `no`
hold ADDRESS PORT    opens a connection and keeps it
again                asks over the kept connection
"""

import socket
import sys

PATIENCE_S = 0.5
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
held = None


def opened(address, port):
    return socket.create_connection((address, int(port)), timeout=PATIENCE_S)


def over(connection):
    with connection:
        connection.sendall(REQUEST)
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    return answer.rpartition(b"\r\n\r\n")[2].split()[0].decode()


def udp(address, port, packet=b"who"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(PATIENCE_S)
        sock.sendto(packet, (address, int(port)))
        return sock.recv(2048)


def resolved(address, name):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    head = bytes.fromhex("000701000001000000000000")
    return socket.inet_ntoa(udp(address, 53, head + labels + b"\0\0\1\0\1")[-4:])


print("ready", flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    try:
        if verb == "tcp":
            result = over(opened(*words))
        elif verb == "udp":
            result = udp(*words).decode()
        elif verb == "name":
            result = resolved(*words)
        elif verb == "hold":
            held, result = opened(*words), "held"
        else:
            result = over(held)
    except OSError:
        result = "no"
    print(result, flush=True)
