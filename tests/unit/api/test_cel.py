"""CEL: the language, Kubernetes' functions, and what is refused before it runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.cel import CelError, CompileError, compile_expression

POD = {
    "metadata": {"name": "web-1", "labels": {"app.kubernetes.io/name": "web", "tier": "front"}},
    "spec": {"replicas": 3, "weight": 1.5, "ports": [80, 443], "nothing": None},
}


def value(source: str, **variables: Any) -> Any:
    variables.setdefault("object", POD)
    return compile_expression(source, variables, ("Object", "JSONPatch")).evaluate(variables)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("object.spec.replicas <= 5 && object.metadata.name.startsWith('web')", True),
        ("object.metadata.labels['app.kubernetes.io/name']", "web"),
        ("has(object.spec.replicas) && !has(object.spec.missing)", True),
        ("object.spec.missing == 1 || true", True),  # an error gives way to what decides
        ("false && object.spec.missing", False),
        ("object.spec.ports.all(p, p > 0) && object.spec.ports.exists(p, p == 443)", True),
        ("object.spec.ports.exists_one(p, p == 80)", True),
        ("object.spec.ports.filter(p, p > 100)", [443]),
        ("object.spec.ports.map(p, p > 100, p + 1)", [444]),
        ("object.spec.ports.all(i, p, i < 2 && p > 0)", True),
        ("object.metadata.labels.all(k, object.metadata.labels[k] != '')", True),
        ("object.metadata.labels.transformMap(k, v, v + '!').tier", "front!"),
        ("cel.bind(n, object.spec.replicas, n * n)", 9),
        ("object.spec.replicas > 2 ? 'many' : 'few'", "many"),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("dyn(1.0) == 1", True),
        ("dyn(true) == 1", False),
        ("'a' in object.metadata.labels || 'tier' in object.metadata.labels", True),
        ("[1, 2] + [3]", [1, 2, 3]),
        ("size('héé') + size([1]) + size({'a': 1})", 5),
        ("type(object.spec.weight) == double && type(1u) == uint", True),
        ("string(1.5) + string(true) + string(2u)", "1.5true2"),
        ("int('12') + int(2.9)", 14),
        ("r'\\d+' == '\\\\d+'", True),
        ("b'\\xff' == bytes('a')", False),
        ('"""multi\nline""".size()', 10),
    ],
)
def test_the_language_is_cel(source, expected):
    assert value(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("object.?spec.?replicas.orValue(1)", 3),
        ("object.?status.?phase.orValue('none')", "none"),
        ("object.metadata.?labels[?'tier'].hasValue()", True),
        ("object[?'status'].optMap(s, s.phase).orValue('-')", "-"),
        ("[?object.?status, 1]", [1]),
        ("{?'a': object.?status, 'b': 2}", {"b": 2}),
        ("optional.of(1).or(optional.of(2)).value()", 1),
    ],
)
def test_missing_fields_can_be_asked_for_safely(source, expected):
    assert value(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "quantity('1Gi') == quantity('1024Mi')",
        "quantity('1500m').isGreaterThan(quantity('1'))",
        "quantity('1').add(quantity('500m')).compareTo(quantity('1.5')) == 0",
        "quantity('2k').asInteger() == 2000 && !isQuantity('nonsense')",
        "url('https://a.example:8443/p?x=1').getHostname() == 'a.example'",
        "url('https://a.example:8443/p?x=1').getQuery()['x'] == ['1'] && !isURL('no url')",
        "ip('10.1.2.3').family() == 4 && ip.isCanonical('::1') && !isIP('10.1')",
        "cidr('10.0.0.0/8').containsIP('10.2.3.4')",
        "!cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')",
        "'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
        "[1, 2, 2].isSorted() && ![2, 1].isSorted() && [1, 2, 3].sum() == 6",
        "[3, 1, 2].min() == 1 && [3, 1, 2].max() == 3 && ['a', 'b', 'a'].lastIndexOf('a') == 2",
        "[1, 2, 1].indexOf(1) == 0 && [1, 1, 2].distinct() == [1, 2]",
        "sets.contains([1, 2], [2]) && sets.intersects([1], [1, 9])",
        "math.greatest(1, 5, 3) == 5",
        "'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b'",
        "'aB'.lowerAscii() == 'ab' && 'abc'.substring(1) == 'bc'",
        "'%s has %d'.format(['web', 3]) == 'web has 3'",
        "timestamp('2026-01-01T00:00:00Z') + duration('36h') == timestamp('2026-01-02T12:00:00Z')",
        "timestamp('2026-01-01T00:00:00Z').getFullYear() == 2026",
        "duration('90m').getHours() == 1",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && isSemver('1.0.0-rc.1') && !isSemver('v1')",
        "format.dns1123Label().validate('Bad').hasValue()",
        "!format.named('date').value().validate('2026-11-15').hasValue()",
        "base64.decode(base64.encode(b'x')) == b'x'",
    ],
)
def test_kubernetes_functions_are_there(source):
    assert value(source) is True


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("object.nosuch.x", "no such key: nosuch"),
        ("object.spec.ports[7]", "index out of bounds: 7"),
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("dyn('a') + 1", "no such overload"),
        ("object.spec.replicas && true", "no such overload"),
        ("quantity('x')", "quantities must match"),
        ("'a'.matches('(')", "error parsing regexp"),
    ],
)
def test_what_goes_wrong_at_run_time_is_told(source, problem):
    with pytest.raises(CelError, match=problem.replace("(", "\\(")):
        value(source)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("object.x =", "<input>:1:10: Syntax error: token recognition error at: '='"),
        ("1 +", "Syntax error: mismatched input '<EOF>'"),
        ("nosuch.x", "undeclared reference to 'nosuch' (in container '')"),
        ("nosuch(1)", "undeclared reference to 'nosuch' (in container '')"),
        ("'a' + 1", "found no matching overload for '_+_' applied to '(string, int)'"),
        ("'a' && true", "expected type 'bool' but found 'string'"),
        ("has(object)", "invalid argument to has() macro"),
        ("Other{a: 1}", "undeclared reference to 'Other'"),
        ("for", "reserved identifier"),
    ],
)
def test_what_cannot_work_is_refused_before_it_runs(source, problem):
    with pytest.raises(CompileError) as refused:
        value(source)
    assert problem in str(refused.value)


def test_a_refusal_points_at_the_place():
    with pytest.raises(CompileError) as refused:
        compile_expression("true &&\n  nosuch", ())
    assert str(refused.value) == (
        "ERROR: <input>:2:3: undeclared reference to 'nosuch' (in container '')\n"
        " |   nosuch\n"
        " | ..^"
    )


def test_messages_are_built_as_plain_maps():
    assert value("Object{metadata: Object.metadata{labels: {'a': 'b'}}}") == {
        "metadata": {"labels": {"a": "b"}}
    }


def test_an_expression_that_runs_too_long_is_stopped():
    with pytest.raises(CelError, match="cost limit"):
        value("lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))")
    with pytest.raises(CelError, match="cost limit"):
        value("lists.range(1000000)")


def test_deep_nesting_is_refused_and_not_a_crash():
    with pytest.raises(CompileError, match="recursion"):
        value("(" * 500 + "1" + ")" * 500)


@given(st.text(alphabet="ab.()[]{}'\"&|!?:=<>+-*/%0123 ,_", max_size=40))
def test_no_text_makes_the_compiler_fail_otherwise(source):
    try:
        compile_expression(source, ("a", "b")).evaluate({"a": POD, "b": [1, "x"]})
    except (CompileError, CelError):
        pass


@given(st.integers(-(2**40), 2**40), st.integers(-(2**20), 2**20).filter(bool))
def test_division_and_remainder_agree(a, b):
    assert value("(a / b) * b + a % b == a", a=a, b=b) is True


@pytest.mark.parametrize(
    "source",
    [
        "[1,2].isSorted()",
        "[1,2].sum()==3",
        "[1,2].min()==1",
        "[1,2].max()==2",
        "[1,2,1].indexOf(1)==0",
        "[1,2,1].lastIndexOf(1)==2",
        "'a1'.find('[0-9]')=='1'",
        "'a1b2'.findAll('[0-9]',1)==['1']",
        "quantity('1Gi').sign()==1",
        "quantity('2').isInteger()",
        "quantity('2').asInteger()==2",
        "quantity('1500m').asApproximateFloat()==1.5",
        "quantity('1').add(quantity('2'))==quantity('3')",
        "quantity('1').sub(1)==quantity('0')",
        "quantity('1').compareTo(quantity('2'))==-1",
        "quantity('1k')==quantity('1000')",
        "ip('::1').family()==6",
        "ip('127.0.0.1').isLoopback()",
        "ip('0.0.0.0').isUnspecified()",
        "ip.isCanonical('127.0.0.1')",
        "ip('224.0.0.1').isLinkLocalMulticast()",
        "ip('169.254.1.1').isLinkLocalUnicast()",
        "ip('8.8.8.8').isGlobalUnicast()",
        "cidr('10.1.0.0/16').containsCIDR('10.1.1.0/24')",
        "cidr('10.1.0.0/16').prefixLength()==16",
        "cidr('10.1.2.3/16').masked()==cidr('10.1.0.0/16')",
        "cidr('10.1.0.0/16').ip()==ip('10.1.0.0')",
        "string(ip('10.0.0.1'))=='10.0.0.1'",
        "!format.dns1123Label().validate('abc').hasValue()",
        "format.dns1123Label().validate('A_').hasValue()",
        "format.named('dns1123Label').hasValue()",
        "!format.uri().validate('https://a').hasValue()",
        "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()",
        "!format.byte().validate('YQ==').hasValue()",
        "!format.date().validate('2021-01-01').hasValue()",
        "!format.datetime().validate('2021-01-01T00:00:00Z').hasValue()",
        "!format.dns1123Subdomain().validate('a.b').hasValue()",
        "!format.dns1035Label().validate('a').hasValue()",
        "!format.qualifiedName().validate('a/b').hasValue()",
        "!format.labelValue().validate('a').hasValue()",
        "!format.dns1123LabelPrefix().validate('a-').hasValue()",
        "!format.dns1123SubdomainPrefix().validate('a-').hasValue()",
        "!format.dns1035LabelPrefix().validate('a-').hasValue()",
        "sets.equivalent([1,2],[2,1,1])",
        "sets.contains([1,2],[2])",
        "!sets.intersects([1],[2])",
        "semver('1.2.3').major()==1",
        "semver('1.2.3').minor()==2",
        "semver('1.2.3').patch()==3",
        "isSemver('1.0.0')",
        "semver('1.2.3').isLessThan(semver('1.3.0'))",
        "semver('1.2.3').compareTo(semver('1.2.3'))==0",
        "semver('v1.0',true)==semver('1.0.0')",
        "isSemver('v1.0',true)",
        "'abc'.reverse()=='cba'",
        "strings.quote('a')=='\"a\"'",
        "'%s %d %.2f %x %b %o %e'.format(['a',1,1.5,255,5,8,1.0]) != ''",
        "[1,2,3].exists(i,v,i==v-1)",
        "{'a':1}.all(k,v,v==1)",
        "[1,2].transformList(i,v,v*2)==[2,4]",
        "{'a':1}.transformMap(k,v,v+1)=={'a':2}",
        "[3].transformMapEntry(i,v,{v:i})=={3:0}",
        "[1,2].existsOne(i,v,v==1)",
        "optional.of(1).hasValue()",
        "optional.none().orValue(2)==2",
        "optional.ofNonZeroValue(0).or(optional.of(3)).value()==3",
        "[1,2].first().value()==1",
        "[1].last().value()==1",
        "{'a':1}[?'b'].orValue(9)==9",
        "optional.of(1).optMap(x,x+1).value()==2",
        "optional.of(1).optFlatMap(x,optional.of(x)).value()==1",
        "jsonpatch.escapeKey('a/b~c')=='a~1b~0c'",
        "timestamp('2021-01-01T00:00:00Z').getFullYear()==2021",
        "timestamp('2021-01-01T00:00:00Z').getHours('America/New_York')==19",
        "duration('1h').getMinutes()==60",
        "timestamp('2021-01-01T00:00:00Z')+duration('1h')==timestamp('2021-01-01T01:00:00Z')",
        "url('https://[::1]:80/a%20b?x=1').getEscapedPath()=='/a%20b'",
        "url('https://a').getPort()==''",
        "url('https://a?x=1&x=2').getQuery()=={'x':['1','2']}",
        "isURL('/path')",
        "!isURL('rel')",
        "cel.bind(x, 3, x*x)==9",
        "[[1],[2,[3]]].flatten()==[1,2,[3]]",
        "[2,1].sort()==[1,2]",
        "[1,1].distinct()==[1]",
        "lists.range(3)==[0,1,2]",
        "[1,2,3].slice(0,2)==[1,2]",
        "[1,2].reverse()==[2,1]",
        "[{'n':2},{'n':1}].sortBy(x,x.n)[0].n==1",
        "math.greatest(1,2)==2",
        "math.abs(-1)==1",
        "math.ceil(1.2)==2.0",
        "math.least([3,4])==3",
        "base64.encode(b'a')=='YQ=='",
        "base64.decode('YQ==')==b'a'",
        "type(1)==int",
        "type('a')==string",
        "'abc'.matches('^a.c$')",
        "1u+2u==3u",
        "int('3')==3",
        "bytes('a')==b'a'",
        "double('1.5')==1.5",
        "bool('true')",
        "string(1)=='1'",
        "dyn(1)==1.0",
        "'a' in ['a']",
        "'k' in {'k':1}",
        "!(3 in [1,2])",
        "(true || 1/0==1)",
        "!(false && 1/0==1)",
        "(1/0==1 || true)",
    ],
)
def test_every_library_of_kubernetes_is_there(source):
    assert value(source) is True


def test_sorting_keeps_equals_in_their_order_and_refuses_what_has_none():
    assert value(
        "[{'n': 2, 'i': 0}, {'n': 1, 'i': 1}, {'n': 2, 'i': 2}].sortBy(x, x.n).map(x, x.i)"
    ) == [
        1,
        0,
        2,
    ]
    with pytest.raises(CelError, match="no such overload"):
        value("[dyn(1), dyn('a')].sort()")


def test_entries_that_meet_are_refused():
    with pytest.raises(CelError, match="insert failed: key 'k' already exists"):
        value("[1, 2].transformMapEntry(i, v, {'k': v})")
