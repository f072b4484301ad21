"""Does a pod put up with a taint? Pure."""

from motley.api.views.core import Taint
from motley.api.views.scheduling import Toleration


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Does this toleration accept this taint?"""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value
