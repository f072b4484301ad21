"""A client inside a network namespace: calls an address, prints what came back as JSON.

call.py http ADDRESS PORT COUNT      [[name, client address], …]; an error is its class name
call.py udp ADDRESS PORT COUNT       [name, …], all from one source port
call.py loop ADDRESS PORT            requests until a line comes on stdin; {answers, errors}
"""

import collections
import json
import select
import socket
import sys


def http_once(address, port):
    """By hand: a client is started for almost every look, and importing one takes far longer."""
    asked = f"GET /healthz HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection((address, port), timeout=3) as connection:
            connection.sendall(asked.encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        if not answer:
            raise ConnectionResetError("no answer")
        return answer.partition(b"\r\n\r\n")[2].decode().split()
    except OSError as error:
        return type(error).__name__


def udp(address, port, count):
    answers = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2)
        sock.connect((address, port))
        for _ in range(count):
            try:
                sock.send(b"who")
                answers.append(sock.recv(2048).decode())
            except OSError as error:
                answers.append(type(error).__name__)
    return answers


def loop(address, port):
    answers, errors = collections.Counter(), collections.Counter()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        answer = http_once(address, port)
        if isinstance(answer, str):
            errors[answer] += 1
        else:
            answers[answer[0]] += 1
    return {"answers": answers, "errors": errors}


mode, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if mode == "http":
    result = [http_once(address, port) for _ in range(int(sys.argv[4]))]
elif mode == "udp":
    result = udp(address, port, int(sys.argv[4]))
else:
    result = loop(address, port)
print(json.dumps(result))
