"""SelfSubjectReview: who am I to this server (`kubectl auth whoami`)?"""

from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.reviews import review
from motley.apiserver.verbs.call import Call


async def create(core: Core, call: Call) -> Answer:
    """201 with the user that the request was served for."""
    _, warnings = await review.read(core, call)
    metadata = {"creationTimestamp": core.writer.timestamp()}
    fields = {"status": {"userInfo": call.user.info}}
    return review.answer(call, metadata, fields, warnings)
