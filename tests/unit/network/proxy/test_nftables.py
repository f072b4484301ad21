from motley.network.proxy.nftables import explain, parse_listing
from motley.network.proxy.ruleset import Element


def rule(chain, comment=None):
    return {"rule": {"chain": chain, "table": "t", **({"comment": comment} if comment else {})}}


def test_a_listing_becomes_fingerprints_and_elements():
    goto = {"goto": {"target": "svc-x"}}
    concat = {"concat": ["10.96.0.1", "tcp", 443]}
    document = {
        "nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"table": {"family": "ip", "name": "t"}},
            {"map": {"name": "services", "comment": "map:1", "elem": [[concat, goto]]}},
            {"map": {"name": "refused", "elem": [[{"concat": ["udp", 53]}, {"drop": None}]]}},
            {"set": {"name": "aff", "comment": "set:1", "timeout": 60, "elem": ["10.0.0.1"]}},
            {"chain": {"name": "whole"}},
            {"chain": {"name": "short"}},
            {"chain": {"name": "empty"}},
            rule("whole", "h.r/2"),
            rule("whole"),
            rule("short", "h.r/2"),
        ]
    }
    applied = parse_listing(document, "t")
    assert applied.exists
    assert applied.sets == {"services": "map:1", "refused": "map:?", "aff": "set:1"}
    assert applied.elements == {
        Element("services", "10.96.0.1 . tcp . 443"): "goto svc-x",
        Element("refused", "udp . 53"): "drop",
    }
    assert applied.chains == {"whole": "h.r/2", "short": "", "empty": ""}


def test_an_error_names_the_command():
    errors = (
        "/proc/self/fd/4:2:15-15: Error: Could not process rule: No such file or directory\n"
        "add rule ip x y accept\n              ^\n"
    )
    assert explain(errors) == (
        "Could not process rule: No such file or directory; command: add rule ip x y accept"
    )
    assert explain("") == "nftables failed without a message"
