"""Small faults that can be put into a source file by rule: which there are, and what the text becomes."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OPERATORS: dict[type[ast.AST], tuple[str, str]] = {  # as written, and what is written instead
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "+"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
# Calls whose absence changes nothing that a test could or should see.
UNSEEN = ("log.debug", "log.info", "super().__init__")


@dataclass(frozen=True)
class Mutant:
    """One fault in one file: the text between two offsets becomes another."""

    path: str  # below src/tacit
    function: str  # in which it lies, with its class
    line: int
    start: int
    stop: int
    before: str
    after: str
    kind: str

    @property
    def id(self) -> str:
        """A name that stays the same while the function and the text around the fault do."""
        told = f"{self.path} {self.function} {self.kind} {self.before} {self.after}"
        return f"{Path(self.path).stem}.{self.function}-{hashlib.sha256(told.encode()).hexdigest()[:10]}"

    def apply(self, source: str) -> str:
        """Return the source with the fault in it."""
        return source[: self.start] + self.after + source[self.stop :]


def find_mutants(path: str, source: str) -> list[Mutant]:
    """Return the faults that can be put into the functions of a file, none of them twice."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    found: dict[str, Mutant] = {}
    for mutant in finder.found:
        found.setdefault(mutant.id, mutant)
    return list(found.values())


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: str) -> None:
        self.path, self.source = path, source
        self.found: list[Mutant] = []
        self._names: list[str] = []
        self._depth = 0  # functions around the present place
        lines = source.splitlines(keepends=True)
        self._raw = [line.encode() for line in lines]
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))

    # -- places in the text ----------------------------------------------------------------------------

    def _offset(self, line: int, column: int) -> int:
        """Return the offset of a place that ``ast`` gives in bytes of its line."""
        return self._starts[line - 1] + len(self._raw[line - 1][:column].decode())

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self._offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return start, self._offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        start, stop = self._span(node)
        return self.source[start:stop]

    def _add(self, node: ast.AST, kind: str, after: str, span: tuple[int, int] | None = None) -> None:
        start, stop = span or self._span(node)
        before = self._text(node)
        if self._depth and self.source[start:stop] != after:
            whole = after if span is None else before[: start - self._span(node)[0]] + after
            line: int = node.lineno  # type: ignore[attr-defined]
            name = ".".join(self._names)
            mutant = Mutant(self.path, name, line, start, stop, self.source[start:stop], after, kind)
            # Told apart from the same change elsewhere in the function by the text of the whole expression.
            self.found.append(Mutant(**{**mutant.__dict__, "kind": f"{kind}: {before} → {whole}"[:200]}))

    # -- where to look -----------------------------------------------------------------------------------

    def _enter(self, node: ast.ClassDef | ast.FunctionDef, function: bool) -> None:
        self._names.append(node.name)
        self._depth += function
        for child in _body_without_docstring(node):
            self.visit(child)
        self._depth -= function
        self._names.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node, False)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name != "__repr__":
            self._enter(node, True)

    # -- the rules ---------------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        left: ast.expr = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._exchange(node, "comparison", operator, left, right)
            left = right
        self.generic_visit(node)

    def _exchange(self, node: ast.AST, kind: str, operator: ast.AST, left: ast.expr, right: ast.expr) -> None:
        """Write another operator between two sides; brackets around them stay."""
        start, stop = self._span(left)[1], self._span(right)[0]
        written, instead = OPERATORS[type(operator)]
        self._add(node, kind, self.source[start:stop].replace(written, instead, 1), (start, stop))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in OPERATORS and not _is_text(node):
            self._exchange(node, "arithmetic", node.op, node.left, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for index in range(len(node.values)):
            rest = [value for place, value in enumerate(node.values) if place != index]
            word = " and " if isinstance(node.op, ast.And) else " or "
            self._add(node, "condition", "(" + word.join(self._text(value) for value in rest) + ")")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._add(node, "sign", f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if len(node.body) == 1 and isinstance(node.body[0], ast.Raise | ast.Return | ast.Continue):
            span = self._span(node.test)
            # A name that the condition binds may be used in the body, which is dropped with it.
            self._add(node.test, "check dropped", f"False and ({self._text(node.test)})", span)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not self._text(node).startswith(UNSEEN):
            self._add(node, "call dropped", "None")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "assignment", f"{self._text(node.target)} = {self._text(node.value)}")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int:
            self._add(node, "number", str(node.value + 1))
        elif type(node.value) is bool:
            self._add(node, "truth", str(not node.value))

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of zip: it stops a mistake of ours that no test could make
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are for people: tests need not hold every word of them."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """What is said in an error is text; whether it is raised is up to the condition around it."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        """Annotations and defaults are no behaviour of the body."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Assertions are for the reader and the type checker."""


def _body_without_docstring(node: ast.ClassDef | ast.FunctionDef) -> Iterator[ast.stmt]:
    first = node.body[0]
    has_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    yield from node.body[1:] if has_text else node.body


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    texts = [side.value for side in sides if isinstance(side, ast.Constant)]
    return any(isinstance(side, ast.JoinedStr) for side in sides) or any(
        isinstance(text, str | bytes) for text in texts
    )
