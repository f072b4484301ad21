"""Requests to one path, again and again, until stdin closes: paths_load.py ADDRESS HOST PATH."""

import collections
import http.client
import json
import select
import sys

address, host, path = sys.argv[1:]
seen = collections.Counter()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    connection = http.client.HTTPConnection(address, 80, timeout=5)
    try:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        answer.read()
        seen[str(answer.status)] += 1
    except (OSError, http.client.HTTPException) as error:
        seen[repr(error)] += 1
    finally:
        connection.close()
print(json.dumps(seen))
