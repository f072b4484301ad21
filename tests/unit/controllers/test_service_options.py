"""Which controllers a process runs."""

import pytest

from motley.controllers import service


def chosen(*controllers):
    options = service.Options(controllers=controllers)
    return {name for name in service.NAMES if options.runs(name)}


def test_all_controllers_run_by_default():
    assert {name for name in service.NAMES if service.Options().runs(name)} == set(service.NAMES)


def test_named_controllers_run_and_no_others():
    assert chosen("namespace", "serviceaccount") == {"namespace", "serviceaccount"}


def test_all_but_one_run():
    assert chosen("*", "-podgc") == set(service.NAMES) - {"podgc"}


def test_an_unknown_controller_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no controller 'nosuch'.*namespace"):
        service.Options(controllers=("nosuch",))
