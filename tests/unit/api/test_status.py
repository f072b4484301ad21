import pytest

from motley.api import status
from motley.api.status import FieldError


def test_broken_rules_are_listed_with_their_fields():
    errors = [
        FieldError("spec.a", "FieldValueRequired", "Required value"),
        FieldError("spec.b", "FieldValueInvalid", 'Invalid value: "x": no'),
    ]
    answer = status.to_status(status.invalid("apps", "Deployment", "d", errors))

    assert answer["message"] == (
        'Deployment.apps "d" is invalid: [spec.a: Required value, spec.b: Invalid value: "x": no]'
    )
    assert [c["field"] for c in answer["details"]["causes"]] == ["spec.a", "spec.b"]
    assert (answer["code"], answer["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    "error",
    [
        status.BadRequest("a"),
        status.Conflict("b"),
        status.AlreadyExists("c"),
        status.Gone("d"),
        status.TooManyRequests("e", retry_after_s=3),
        status.not_found("apps", "deployments", "x"),
    ],
    ids=lambda e: e.reason,
)
def test_an_error_survives_the_wire(error):
    again = status.from_status(status.to_status(error))

    assert type(again) is type(error)
    assert again.message == error.message
    assert again.retry_after_s == error.retry_after_s
