"""Names and other short texts with rules: each check returns what is wrong, in Kubernetes' words.

An empty list means the text is fine. The callers put the field and the value around the words.
"""

import ipaddress
import re
from random import Random

LABEL_MAX = 63
SUBDOMAIN_MAX = 253
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels and no look-alikes: spells no words
_SUFFIX_LENGTH = 5

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = rf"({_QUALIFIED})?"
_C_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_CONFIG_KEY = r"[-._a-zA-Z0-9]+"
_PORT_NAME = r"[-a-z0-9]+"


def _described(text: str, pattern: str, *examples: str) -> str:
    listed = ",  or ".join(f"'{e}'" for e in examples)
    return f"{text} (e.g. {listed}, regex used for validation is '{pattern}')"


_LABEL_WORDS = _described(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_WORDS = _described(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_DNS_1035_WORDS = _described(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character",
    _DNS_1035,
    "my-name",
    "abc-123",
)
_WILDCARD_WORDS = _described(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which "
    "must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric "
    "character",
    rf"\*\.{_SUBDOMAIN}",
    "*.example.com",
)
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_HTTP_PATH_WORDS = f"must match the regex {_HTTP_PATH}"
_QUALIFIED_WORDS = _described(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_LABEL_VALUE_WORDS = _described(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character",
    _LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_CONFIG_KEY_WORDS = _described(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_C_IDENTIFIER_WORDS = _described(
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_'",
    _C_IDENTIFIER,
    "my_name",
    "MY_NAME",
    "MyName",
)

_wildcard_re = re.compile(rf"\*\.{_SUBDOMAIN}")
_http_path_re = re.compile(_HTTP_PATH)
_label_re = re.compile(_LABEL)
_subdomain_re = re.compile(_SUBDOMAIN)
_dns_1035_re = re.compile(_DNS_1035)
_qualified_re = re.compile(_QUALIFIED)
_label_value_re = re.compile(_LABEL_VALUE)
_c_identifier_re = re.compile(_C_IDENTIFIER)
_config_key_re = re.compile(_CONFIG_KEY)
_port_name_re = re.compile(_PORT_NAME)


def too_long(limit: int, unit: str = "bytes") -> str:
    """The words for a text over its limit."""
    return f"must be no more than {limit} {unit}"


def _checked(
    text: str, pattern: re.Pattern[str], words: str, limit: int, unit: str = "characters"
) -> list[str]:
    wrong = []
    if len(text.encode()) > limit:
        wrong.append(too_long(limit, unit))
    if not pattern.fullmatch(text):
        wrong.append(words)
    return wrong


def check_dns_label(text: str) -> list[str]:
    """RFC 1123 label: names of namespaces, containers, volumes, most things."""
    words = "must not contain dots" if _subdomain_re.fullmatch(text) else _LABEL_WORDS
    return _checked(text, _label_re, words, LABEL_MAX)


def check_dns_subdomain(text: str) -> list[str]:
    """RFC 1123 subdomain: names of pods, nodes, config maps and all that need no stricter rule."""
    return _checked(text, _subdomain_re, _SUBDOMAIN_WORDS, SUBDOMAIN_MAX)


def check_dns_1035_label(text: str) -> list[str]:
    """RFC 1035 label, which starts with a letter: names of services."""
    return _checked(text, _dns_1035_re, _DNS_1035_WORDS, LABEL_MAX)


def check_qualified_name(text: str) -> list[str]:
    """`name` or `prefix/name`: keys of labels, annotations, taints and resources."""
    wrong = []
    prefix, slash, name = text.rpartition("/")
    if slash:
        if "/" in prefix:
            return [
                "a qualified name "
                + _described(
                    "must consist of alphanumeric characters, '-', '_' or '.', and must start and "
                    "end with an alphanumeric character",
                    _QUALIFIED,
                    "MyName",
                    "my.name",
                    "123-abc",
                )
                + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ]
        if not prefix:
            wrong.append("prefix part must be non-empty")
        else:
            wrong += [f"prefix part {w}" for w in check_dns_subdomain(prefix)]
    if not name:
        wrong.append("name part must be non-empty")
    elif len(name.encode()) > LABEL_MAX:
        wrong.append(f"name part {too_long(LABEL_MAX)}")
    if not _qualified_re.fullmatch(name):
        wrong.append(f"name part {_QUALIFIED_WORDS}")
    return wrong


def check_label_value(text: str) -> list[str]:
    """The value of a label: short, may be empty."""
    return _checked(text, _label_value_re, _LABEL_VALUE_WORDS, LABEL_MAX, "bytes")


def check_config_key(text: str) -> list[str]:
    """A key of a ConfigMap or Secret, which may become a file name."""
    wrong = _checked(text, _config_key_re, _CONFIG_KEY_WORDS, SUBDOMAIN_MAX)
    if text == ".":
        wrong.append("must not be '.'")
    elif text == "..":
        wrong.append("must not be '..'")
    elif text.startswith(".."):
        wrong.append("must not start with '..'")
    return wrong


def check_env_name(text: str) -> list[str]:
    """The name of an environment variable: any printable ASCII but `=`."""
    if not text:
        return ["environment variable name must not be empty"]
    if any(not 0x20 <= ord(c) <= 0x7E or c == "=" for c in text):
        return [
            "a valid environment variable name must consist only of printable ASCII characters "
            "other than '='"
        ]
    return []


def check_c_identifier(text: str) -> list[str]:
    """An identifier of C: prefixes of imported environment variables."""
    return [] if _c_identifier_re.fullmatch(text) else [_C_IDENTIFIER_WORDS]


def check_port_name(text: str) -> list[str]:
    """An IANA service name: names of container ports."""
    wrong = []
    if len(text) > 15:
        wrong.append(too_long(15, "characters"))
    if not _port_name_re.fullmatch(text):
        wrong.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= c <= "z" for c in text):
        wrong.append("must contain at least one letter (a-z)")
    if "--" in text:
        wrong.append("must not contain consecutive hyphens")
    if text and (text[0] == "-" or text[-1] == "-"):
        wrong.append("must not begin or end with a hyphen")
    return wrong


def check_path_segment(text: str) -> list[str]:
    """A name that is only ever one segment of a path: names of RBAC objects."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{c}'" for c in ("/", "%") if c in text]


BAD_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_WITH_ZEROS = re.compile(r"\d+(\.\d+){3}")


def check_address(text: str) -> list[str]:
    """A name that is an address, in the one form that every address has."""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        if _WITH_ZEROS.fullmatch(text) and all(int(part) <= 255 for part in text.split(".")):
            return ["must not have leading 0s"]
        return [BAD_IP]
    if "%" in text:
        return [BAD_IP]
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return ["must not be an IPv4-mapped IPv6 address"]
    return [] if str(parsed) == text else [f'must be in canonical form ("{parsed}")']


def check_wildcard_subdomain(text: str) -> list[str]:
    """A subdomain whose first label may be anything: hosts of an Ingress."""
    return _checked(text, _wildcard_re, _WILDCARD_WORDS, SUBDOMAIN_MAX)


def check_domain_path(text: str) -> list[str]:
    """`domain/path`: names of controllers and signers."""
    host, slash, path = text.partition("/")
    if not text:
        return ["must not be empty"]
    if not slash or not host or not path:
        return ['must be a domain-prefixed path (such as "acme.io/foo")']
    return check_dns_subdomain(host) + (
        [] if _http_path_re.fullmatch(path) else [f"Invalid path: {_HTTP_PATH_WORDS}"]
    )


def is_dns_label(text: str) -> bool:
    """Is it an RFC 1123 label?"""
    return not check_dns_label(text)


def is_dns_subdomain(text: str) -> bool:
    """Is it an RFC 1123 subdomain?"""
    return not check_dns_subdomain(text)


def is_dns_1035_label(text: str) -> bool:
    """Is it an RFC 1035 label?"""
    return not check_dns_1035_label(text)


def is_qualified_name(text: str) -> bool:
    """Is it `name` or `prefix/name`?"""
    return not check_qualified_name(text)


def is_label_value(text: str) -> bool:
    """May a label have this value?"""
    return not check_label_value(text)


def generate(base: str, rng: Random) -> str:
    """A name from `generateName`: the base, cut so that all fits a label, and a random suffix."""
    suffix = "".join(rng.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
    return base[: LABEL_MAX - _SUFFIX_LENGTH] + suffix


def new_uid(rng: Random) -> str:
    """A random (version 4) UUID."""
    bits = rng.getrandbits(128)
    bits = bits & ~(0xF << 76) | 0x4 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
