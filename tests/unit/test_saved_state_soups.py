"""What was found in a soup of Beautiful Soup is a part of it still."""

from __future__ import annotations

import pytest

from saved_state_roundtrip import cells, of_user, roundtrip, taken

pytest.importorskip("bs4", reason="pip install beautifulsoup4 to check its trees")
SOUP = """
from bs4 import BeautifulSoup
soup = BeautifulSoup('<html><body><p id="a">x<b>y</b></p><!--c--><p class="d e">z</p></body></html>', "html.parser")
first, bold, comment = soup.p, soup.b, soup.p.next_sibling
"""


def test_what_was_found_in_a_soup_is_in_it():
    result = roundtrip(f"{SOUP}found, text = soup.find_all('p'), bold.string\nfirst.note = [bold]\nbefore = str(soup)")
    assert not result.unsaved
    assert not result.report.missing
    soup, first, bold, found, text = (result[name] for name in ("soup", "first", "bold", "found", "text"))
    assert str(soup) == result["before"]
    assert soup.find("p") is first is found[0] is bold.parent
    assert (soup.b, bold.string, bold.find_next("p")) == (bold, text, found[1])
    assert bold.string is text
    assert first.note == [bold]
    assert result["comment"].next_sibling is found[1]
    assert found[1]["class"] == ["d", "e"]
    first.name = "div"
    soup.body.append(soup.new_tag("i"))
    assert str(soup).startswith('<html><body><div id="a">')
    assert str(soup).endswith("<i></i></body></html>")


def test_a_tag_without_a_name_for_its_soup_has_its_soup():
    result = roundtrip(f"{SOUP}del soup, first, comment")
    assert not result.report.missing
    assert str(result["bold"].find_parent("html").parent) == str(cells(SOUP)["soup"])


def test_a_soup_that_its_user_has_changed_is_not_parsed_again():
    result = roundtrip(
        f"{SOUP}bold.insert(0, 'a'); bold.append('<'); cut = comment.extract(); first.wrap(soup.new_tag('p'))"
    )
    soup = result["soup"]
    assert str(soup) == '<html><body><p><p id="a">x<b>ay&lt;</b></p></p><p class="d e">z</p></body></html>'
    assert list(result["bold"].strings) == ["a", "y", "<"]
    assert (result["cut"].parent, result["cut"], soup.body.contents[0].p) == (None, "c", result["first"])


def test_a_soup_of_thousands_of_tags_comes_back_as_it_is():
    result = roundtrip("""
from bs4 import BeautifulSoup
text = "<ul>" + "<li>a</li>" * 3000 + "</ul>" + "<b>" * 500 + "</b>" * 500
soup = BeautifulSoup(text, "html.parser")
last = soup.find_all("li")[-1]
""")
    assert not result.unsaved
    assert not result.report.missing
    assert result["soup"].ul.contents[-1] is result["last"]
    assert len(result["soup"].find_all("b")) == 500


def test_what_cannot_be_saved_in_a_tree_names_it_as_a_whole():
    space = cells(SOUP)
    space["first"].lock = taken()
    result = of_user(space)
    assert {"soup", "first", "bold", "comment"} <= set(result.unsaved)
