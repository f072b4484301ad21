"""Tokens to a tree: CEL's grammar by recursive descent, macros expanded on the way.

Invariant: depth is bounded, so that no expression overflows the interpreter's stack.
"""

from collections.abc import Callable

from motley.api.cel import tree
from motley.api.cel.errors import CompileError
from motley.api.cel.lexer import Token, tokens
from motley.api.cel.tree import Node

# cel-go's own bound is 250 recursions; a level here is several Python frames.
_MAX_DEPTH = 60
# Kubernetes' bound on the length of an expression.
MAX_LENGTH = 10 * 1024 * 1024
_RELATIONS = ("==", "!=", "<", "<=", ">", ">=", "in")
_RESERVED = frozenset(
    {
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)
_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
_TWO_VARIABLE_MACROS = frozenset({"transformList", "transformMap", "transformMapEntry"})


def parse(source: str) -> Node:
    """The tree of an expression; CompileError when it is none."""
    if len(source) > MAX_LENGTH:
        raise CompileError("", 0, f"expression code point size exceeds limit: {MAX_LENGTH}")
    return _Parser(source).whole()


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokens(source)
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        found = self._expression()
        if self._peek.kind != "end":
            raise self._unexpected("<EOF>")
        return found

    @property
    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _is(self, *texts: str) -> bool:
        token = self._peek
        return token.text in texts and (
            token.kind == "op" or (token.kind == "ident" and token.text == "in")
        )

    def _take(self, text: str) -> bool:
        if self._is(text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> Token:
        if not self._is(text):
            raise self._unexpected(f"'{text}'")
        return self._next()

    def _unexpected(self, wanted: str = "") -> CompileError:
        token = self._peek
        if token.kind == "end" or not wanted:
            problem = f"Syntax error: mismatched input '{token.text}' expecting {wanted or 'value'}"
        else:
            problem = f"Syntax error: extraneous input '{token.text}' expecting {wanted}"
        return CompileError(self._source, token.offset, problem)

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise CompileError(self._source, self._peek.offset, "max recursion depth exceeded")
        try:
            condition = self._or()
            if not self._is("?"):
                return condition
            offset = self._next().offset
            then = self._or()
            self._expect(":")
            return tree.Choice(offset, condition, then, self._expression())
        finally:
            self._depth -= 1

    def _or(self) -> Node:
        left = self._and()
        while self._is("||"):
            offset = self._next().offset
            left = tree.Or(offset, left, self._and())
        return left

    def _and(self) -> Node:
        left = self._relation()
        while self._is("&&"):
            offset = self._next().offset
            left = tree.And(offset, left, self._relation())
        return left

    def _relation(self) -> Node:
        return self._binary(_RELATIONS, self._sum)

    def _sum(self) -> Node:
        return self._binary(("+", "-"), self._product)

    def _product(self) -> Node:
        return self._binary(("*", "/", "%"), self._unary)

    def _binary(self, operators: tuple[str, ...], operand: Callable[[], Node]) -> Node:
        left = operand()
        while self._is(*operators):
            operator = self._next()
            right = operand()
            left = tree.Call(operator.offset, f"_{operator.text}_", None, (left, right))
        return left

    def _unary(self) -> Node:
        token = self._peek
        if self._is("!", "-"):
            count = 0
            while self._take(token.text):
                count += 1
            operand = self._unary() if self._is("!", "-") else self._member()
            if token.text == "-" and count == 1 and _is_number(operand):
                assert isinstance(operand, tree.Literal)
                return tree.Literal(token.offset, -operand.value)
            if count % 2 == 0:
                return operand
            return tree.Call(token.offset, f"{token.text}_", None, (operand,))
        return self._member()

    def _member(self) -> Node:
        found = self._primary()
        while True:
            token = self._peek
            if self._is(".", ".?"):
                self._next()
                found = self._selection(found, token)
            elif self._is("[", "[?"):
                self._next()
                key = self._expression()
                self._expect("]")
                found = tree.Index(token.offset, found, key, token.text == "[?")
            elif self._is("{") and (name := _qualified(found)):
                found = self._message(name, token.offset)
            else:
                return found

    def _selection(self, operand: Node, dot: Token) -> Node:
        name = self._peek
        if name.kind != "ident":
            raise self._unexpected("IDENTIFIER")
        self._next()
        if dot.text == "." and self._is("("):
            self._next()
            arguments = self._arguments()
            return self._method(operand, name, arguments)
        return tree.Select(dot.offset, operand, name.text, optional=dot.text == ".?")

    def _arguments(self) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self._take(")"):
            if found:
                self._expect(",")
            found.append(self._expression())
        return tuple(found)

    def _method(self, target: Node, name: Token, arguments: tuple[Node, ...]) -> Node:
        if name.text in _MACROS and len(arguments) in (2, 3):
            return self._macro(target, name, arguments)
        if name.text in _TWO_VARIABLE_MACROS and len(arguments) in (3, 4):
            return self._two_variables(target, name, arguments)
        if name.text in ("optMap", "optFlatMap", "sortBy") and len(arguments) == 2:
            variable = self._variable(arguments[0])
            return tree.Comprehension(
                name.offset, name.text, target, (variable,), None, arguments[1]
            )
        if name.text == "bind" and _qualified(target) == "cel" and len(arguments) == 3:
            return tree.Bind(name.offset, self._variable(arguments[0]), *arguments[1:])
        return tree.Call(name.offset, name.text, target, arguments)

    def _macro(self, target: Node, name: Token, arguments: tuple[Node, ...]) -> Node:
        how = "exists_one" if name.text == "existsOne" else name.text
        variable = self._variable(arguments[0])
        if len(arguments) == 2:
            return tree.Comprehension(name.offset, how, target, (variable,), None, arguments[1])
        if how == "map":
            return tree.Comprehension(
                name.offset, how, target, (variable,), arguments[1], arguments[2]
            )
        if how == "filter":
            return tree.Call(name.offset, name.text, target, arguments)
        second = self._variable(arguments[1])
        return tree.Comprehension(name.offset, how, target, (variable, second), None, arguments[2])

    def _two_variables(self, target: Node, name: Token, arguments: tuple[Node, ...]) -> Node:
        variables = (self._variable(arguments[0]), self._variable(arguments[1]))
        condition = arguments[2] if len(arguments) == 4 else None
        return tree.Comprehension(
            name.offset, name.text, target, variables, condition, arguments[-1]
        )

    def _variable(self, node: Node) -> str:
        if not isinstance(node, tree.Name):
            raise CompileError(self._source, node.offset, "argument must be a simple name")
        return node.name

    def _primary(self) -> Node:
        token = self._next()
        if token.kind in ("int", "double", "string", "bytes"):
            return tree.Literal(token.offset, token.value)
        if token.kind == "uint":
            return tree.Call(token.offset, "uint", None, (tree.Literal(token.offset, token.value),))
        if token.kind == "ident":
            return self._identifier(token)
        if token.text == "(":
            found = self._expression()
            self._expect(")")
            return found
        if token.text in ("[", "[?"):
            return self._list(token)
        if token.text == "{":
            return self._map(token)
        if token.text == "." and self._peek.kind == "ident":  # an absolute name
            return self._identifier(self._next())
        self._at -= 1
        raise self._unexpected(
            "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, "
            "NUM_UINT, STRING, BYTES, IDENTIFIER}"
        )

    def _identifier(self, token: Token) -> Node:
        constants = {"true": True, "false": False, "null": None}
        if token.text in constants:
            return tree.Literal(token.offset, constants[token.text])
        if token.text in _RESERVED or token.text == "in":
            raise CompileError(
                self._source, token.offset, f"Syntax error: reserved identifier: {token.text}"
            )
        if not self._is("("):
            return tree.Name(token.offset, token.text)
        self._next()
        arguments = self._arguments()
        if token.text != "has":
            return tree.Call(token.offset, token.text, None, arguments)
        if len(arguments) != 1 or not isinstance(arguments[0], tree.Select):
            raise CompileError(self._source, token.offset, "invalid argument to has() macro")
        selected = arguments[0]
        return tree.Select(selected.offset, selected.operand, selected.field, test=True)

    def _list(self, token: Token) -> Node:
        items: list[tuple[Node, bool]] = []
        while not self._take("]"):
            if items:
                self._expect(",")
                if self._take("]"):
                    break
            optional = self._take("?") or (not items and token.text == "[?")
            items.append((self._expression(), optional))
        return tree.ListOf(token.offset, tuple(items))

    def _map(self, token: Token) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        while not self._take("}"):
            if entries:
                self._expect(",")
                if self._take("}"):
                    break
            optional = self._take("?")
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), optional))
        return tree.MapOf(token.offset, tuple(entries))

    def _message(self, name: str, offset: int) -> Node:
        self._expect("{")
        fields: list[tuple[str, Node, bool]] = []
        while not self._take("}"):
            if fields:
                self._expect(",")
                if self._take("}"):
                    break
            optional = self._take("?")
            field = self._next()
            if field.kind != "ident":
                self._at -= 1
                raise self._unexpected("IDENTIFIER")
            self._expect(":")
            fields.append((field.text, self._expression(), optional))
        return tree.Message(offset, name, tuple(fields))


def _is_number(node: Node) -> bool:
    return (
        isinstance(node, tree.Literal)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    )


def _qualified(node: Node) -> str:
    """`a.b.c` as one name; empty when the node is anything else."""
    if isinstance(node, tree.Name):
        return node.name
    if isinstance(node, tree.Select) and not node.test and not node.optional:
        before = _qualified(node.operand)
        return f"{before}.{node.field}" if before else ""
    return ""
