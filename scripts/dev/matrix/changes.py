"""Small changes of Python code, each of which some test should notice."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

COMPARISONS = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),  # codespell:ignore
    ast.NotIn: (ast.In,),  # codespell:ignore
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
# Types are mypy's business; decorators and assertions say what holds anyway.
UNCHANGED = {"annotation", "returns", "type_params", "decorator_list"}


@dataclass(frozen=True)
class Change:
    """A change at one place of a module."""

    path: str
    """The module, as named on the command line."""
    place: int
    """Number of the place within the module."""
    choice: int
    """Number of the change, among those of the place."""
    lines: tuple[int, int]
    """First and last line of the changed statement, without the body of a compound one."""
    was: str
    now: str

    def codes(self) -> tuple[CodeType, CodeType]:
        """Compile the module as it is, and changed."""
        path = Path(self.path).resolve()
        tree = ast.parse(path.read_bytes())
        before = compile(tree, path, "exec", dont_inherit=True)
        parent, field, at, others, _ = list(places(tree))[self.place]
        put(parent, field, at, others[self.choice])
        return before, compile(tree, path, "exec", dont_inherit=True)


def put(parent: ast.AST, field: str, at: int | None, node: ast.AST) -> None:
    if at is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[at] = node
    ast.fix_missing_locations(parent)


def drawn(path: str, seed: int, count: int) -> list[Change]:
    """Draw changes of a module, at most one for each place, in the order of the lines."""
    dice = random.Random(f"{seed} {path}")
    found = list(places(ast.parse(Path(path).read_bytes())))
    changes = []
    for number in sorted(dice.sample(range(len(found)), min(count, len(found)))):
        parent, field, at, others, lines = found[number]
        choice = dice.randrange(len(others))
        old = getattr(parent, field) if at is None else getattr(parent, field)[at]
        shown = parent if isinstance(old, ast.operator | ast.boolop | ast.cmpop) else None  # with its operands
        was = ast.unparse(shown or old)
        put(parent, field, at, others[choice])
        now = ast.unparse(shown or others[choice])
        put(parent, field, at, old)
        changes.append(Change(path, number, choice, lines, " ".join(was.split()), " ".join(now.split())))
    return changes


Place = tuple[ast.AST, str, int | None, list[ast.AST], tuple[int, int]]


def places(node: ast.AST, lines: tuple[int, int] = (1, 1)) -> Iterator[Place]:
    """Yield each place that can change: its parent, field, index in a list, what may replace it, and its lines."""
    if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        return
    for field, value in ast.iter_fields(node):
        if field in UNCHANGED:
            continue
        for at, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST):
                continue
            inner = header(child) if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case) else lines
            if others := list(replacements(child)):
                yield node, field, at if isinstance(value, list) else None, others, inner
            yield from places(child, inner)


def header(node: ast.stmt | ast.excepthandler | ast.match_case) -> tuple[int, int]:
    """Return the lines of a statement without those of its body."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, max(node.pattern.lineno, node.body[0].lineno - 1)
    if isinstance(node, ast.Match):
        return node.lineno, node.cases[0].pattern.lineno - 1
    if body := getattr(node, "body", None):
        return node.lineno, max(node.lineno, body[0].lineno - 1)
    return node.lineno, node.end_lineno or node.lineno


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may replace a node."""
    match node:
        case ast.cmpop():
            yield from (other() for other in COMPARISONS[type(node)])
        case ast.operator() if type(node) in OPERATORS:
            yield OPERATORS[type(node)]()
        case ast.And():
            yield ast.Or()
        case ast.Or():
            yield ast.And()
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield node.operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield ast.Pass()
        case ast.AugAssign():
            yield ast.Pass()
        case ast.Raise() if not ast.unparse(node).startswith("raise AssertionError"):
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) not in ("None", "NotImplemented"):
            yield ast.Return(ast.Constant(None))
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call() as test):
            yield ast.If(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
