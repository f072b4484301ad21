"""How others check our service-account tokens: OpenID discovery and the public keys.

A cloud provider or another cluster that trusts this issuer fetches these two documents; who may
is a role's matter (`system:service-account-issuer-discovery`).
"""

from motley.api import codec
from motley.apiserver import answer
from motley.apiserver.answer import Answer
from motley.apiserver.authn.keys import ALGORITHM
from motley.apiserver.authn.serviceaccounts import ServiceAccountTokens
from motley.apiserver.request import RequestInfo

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
PATHS = (CONFIGURATION, KEYS)


def handle(info: RequestInfo, tokens: ServiceAccountTokens, server_address: str) -> Answer:
    """One of the two documents."""
    if info.method not in ("GET", "HEAD"):
        raise answer.method_not_allowed()
    if info.path == KEYS:
        body = codec.encode({"keys": [key.jwk for key in tokens.keys.public]})
        return Answer(body, 200, "application/jwk-set+json")
    return answer.of(
        {
            "issuer": tokens.issuer,
            "jwks_uri": f"https://{server_address}{KEYS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }
    )
