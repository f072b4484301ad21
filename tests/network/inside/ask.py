"""A resolver inside a pod: ask.py SERVER udp|tcp NAME TYPE … prints [[code, [answer, …]], …]."""

import json
import sys

import dns.message
import dns.query
import dns.rcode

server, transport, *questions = sys.argv[1:]
results = []
for name, type_ in zip(questions[::2], questions[1::2], strict=True):
    query = dns.message.make_query(name, type_)
    ask = dns.query.udp if transport == "udp" else dns.query.tcp
    answer = ask(query, server, timeout=3)
    texts = sorted(f"{rrset.name} {r}" for rrset in answer.answer for r in rrset)
    results.append([dns.rcode.to_text(answer.rcode()), texts])
print(json.dumps(results))
