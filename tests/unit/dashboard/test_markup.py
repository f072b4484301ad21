"""Whatever others write stays text."""

from html.parser import HTMLParser
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from motley.dashboard.markup import Html, document, tag, text

HOSTILE = "</td><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;"


class Seen(HTMLParser):
    """What a parser of HTML makes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_hostile_text_stays_text():
    seen = Seen(tag("td", HOSTILE))
    assert seen.tags == [("td", {})]
    assert seen.text == HOSTILE


def test_hostile_attributes_stay_attributes():
    seen = Seen(tag("a", "x", title=HOSTILE, href='"onclick="alert(1)'))
    assert seen.tags == [("a", {"title": HOSTILE, "href": '"onclick="alert(1)'})]


def test_what_was_made_here_is_not_escaped_again():
    assert tag("p", tag("b", "a & b"), " ", ["c", None, ["<"]]) == ("<p><b>a &amp; b</b> c&lt;</p>")


def test_a_string_made_of_html_is_only_text_again():
    assert text(f"{tag('b', 'x')}") == "&lt;b&gt;x&lt;/b&gt;"
    assert text(tag("b", "x").upper()) == "&lt;B&gt;X&lt;/B&gt;"


def test_attributes_are_left_out_or_stand_alone():
    made = tag("input", type="x", required=True, disabled=False, value=None, data_filter="")
    assert made == '<input type="x" required data-filter=""/>'


def test_names_of_attributes_may_be_words_of_python():
    assert tag("label", for_="x", class_="y", aria_label="z") == (
        '<label for="x" class="y" aria-label="z"></label>'
    )


def test_elements_of_svg_are_closed_so_that_the_next_is_no_child_of_theirs():
    assert tag("svg", tag("path", d="M0 0"), tag("circle", r=1)) == (
        '<svg><path d="M0 0"></path><circle r="1"></circle></svg>'
    )
    assert tag("br") == "<br/>"


def test_a_page_can_be_sent_whatever_names_hold():
    page = document(tag("title", "half a pair \ud800"), tag("p", "a\x00b\x1b[31m\x9c\uffff"))
    assert isinstance(page, Html)
    assert page.startswith('<!doctype html><html lang="en"><head>')
    assert "half a pair \ufffd" in page.encode().decode()
    assert "a\ufffdb\ufffd[31m\ufffd\ufffd" in page


_SPOKEN = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
SPEAKABLE = st.text(_SPOKEN)


@given(SPEAKABLE, SPEAKABLE)
def test_text_and_attributes_come_back_as_they_were(words, value):
    found = ElementTree.fromstring(tag("p", words, title=value))
    assert (found.text or "") == words
    assert found.get("title") == value
    assert len(found) == 0


@given(st.text(st.characters()), st.text(st.characters()))
def test_anything_at_all_makes_one_element(words, value):
    page = tag("p", words, title=value)
    assert [name for name, _ in Seen(page).tags] == ["p"]
    assert len(ElementTree.fromstring(page.encode())) == 0
