"""Names of signers: `domain/path`, of whoever signs requests for certificates."""

from motley.api import names
from motley.api.validation.errors import Errors, invalid, named, required

_FORM = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
_OWN = "kubernetes.io"


def signer_name(field: str, name: str) -> Errors:
    """Who shall sign: a domain and a path."""
    if not name:
        yield required(field)
        return
    domain, slash, path = name.partition("/")
    if not slash or not path or "/" in path:
        yield invalid(field, name, _FORM)
        return
    yield from named(field, domain, names.check_dns_subdomain(domain))
    if len(domain.split(".")) < 2:
        yield invalid(
            field, domain, "should be a domain with at least two segments separated by dots"
        )
    yield from named(field, path, names.check_dns_subdomain(path))


def is_kubernetes(name: str) -> bool:
    """Whether the signer is one of Kubernetes' own."""
    domain = name.partition("/")[0]
    return domain == _OWN or domain.endswith(f".{_OWN}")
