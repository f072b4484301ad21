"""Who are you? A token says it."""

from motley.dashboard.markup import Html, tag
from motley.dashboard.pages import frame


def page(told: str = "", *, is_open: bool) -> Html:
    """Where a token is asked for; without `is_open` only the printed address lets in."""
    if not is_open:
        return frame.alone(
            "Motley",
            (
                tag("p", told, class_="note bad") if told else None,
                "This dashboard serves whoever started it: open the address that it printed.",
            ),
        )
    help_ = tag(
        "p",
        "A token comes from ",
        tag("code", "motley dashboard token"),
        " or ",
        tag("code", "kubectl create token NAME"),
        ". What you see is what that account may see.",
    )
    form = tag(
        "form",
        tag("label", "Token", for_="token"),
        tag(
            "input",
            id="token",
            name="token",
            type="password",
            autocomplete="off",
            required=True,
            autofocus=True,
        ),
        tag("button", "Log in"),
        method="post",
        action="/login",
    )
    return frame.alone("Motley", (tag("p", told, class_="note bad") if told else None, form, help_))
