"""Miniscript (BIP-379): the script and type of an expression, and the rules that Bitcoin Core applies to them.

A type is a set of letters, as in BIP-379 and in Core's miniscript.h:

- B, V, K or W: the basic type.
- z, o, n, d and u: correctness.
- e, f, s and m: malleability.
- x: the script has no cheap VERIFY form.
- g, h, i and j: kinds of timelocks. k: they are not mixed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, Union

from spvfilter.errors import counted
from spvfilter.watch.descriptor.expression import Expression, fault
from spvfilter.watch.descriptor.keyexpression import KeyPlace, Reading, read_key
from spvfilter.watch.descriptor.template import (
    Key,
    Script,
    Slot,
    keys_of,
    pushed_key,
    pushed_key_hash,
    pushed_keys,
    pushed_number,
    size_of,
    summed_keys,
)

MAX_MULTI_KEYS = 20
"""Largest number of keys in multi() (Core script.h MAX_PUBKEYS_PER_MULTISIG)."""
MAX_MULTI_A_KEYS = 999
"""Largest number of keys in multi_a() (Core script.h MAX_PUBKEYS_PER_MULTI_A)."""
_MAX_SCRIPT = 3_600
"""Largest size of a script in wsh(), in bytes (Core policy.h MAX_STANDARD_P2WSH_SCRIPT_SIZE).

A leaf of a taproot tree needs no such check, because even the longest descriptor has a smaller script than Core allows.
"""
_MAX_OPS = 201
"""Largest number of executed operations in wsh() (Core script.h MAX_OPS_PER_SCRIPT)."""
_MAX_WITNESS_ITEMS = 100
"""Largest number of witness items that satisfy wsh() (Core policy.h MAX_STANDARD_P2WSH_STACK_ITEMS)."""
_MAX_STACK = 1_000
"""Largest size of the stack in items (Core script.h MAX_STACK_SIZE)."""
_MAX_WRAPPERS = 100
"""Largest number of wrappers before one colon (our choice)."""
_MAX_THRESH = 1_000
"""Largest number of expressions in thresh() (our choice: more would need more than 1,000 items on the stack)."""
_TIME_FLAG = 1 << 22
"""Bit that is set if a relative timelock counts time instead of blocks (BIP-68)."""
_TIME_THRESHOLD = 500_000_000
"""Smallest absolute timelock that is a time, not a height (Core script.h LOCKTIME_THRESHOLD)."""
_HASHES = {"sha256": (b"\xa8", 32), "hash256": (b"\xaa", 32), "ripemd160": (b"\xa6", 20), "hash160": (b"\xa9", 20)}
_VERIFY = {0xAC: 0xAD, 0xAE: 0xAF, 0x87: 0x88, 0x9C: 0x9D}
"""Operations that have a VERIFY form: CHECKSIG, CHECKMULTISIG, EQUAL and NUMEQUAL."""
_ANY = ("B", "K", "V")

Type = frozenset[str]
"""Letters of a type."""
Part = Union[bytes, Slot, "Parts"]
"""A part of a template, or a nested template."""
Parts = tuple[Part, ...]
"""A template with nested parts, so that larger scripts share the parts of smaller ones."""


class Cost(NamedTuple):
    """The resources that a satisfaction or a dissatisfaction needs, as in Core's Ops and SatInfo."""

    keys: int
    """Number of keys of executed CHECKMULTISIG operations."""
    removed: int
    """Number of items that the script removes from the stack."""
    peak: int
    """Largest number of items on the stack during the execution, above the number at its end."""


Costs = Cost | None
"""A cost, or None if the expression cannot be satisfied, or dissatisfied."""


class MiniscriptNode(NamedTuple):
    """A miniscript expression."""

    at: int
    """Offset of the expression in the descriptor."""
    name: str
    """Name of the fragment."""
    type: Type
    """Letters of its type."""
    script: Parts
    """Template of its script."""
    ops: int
    """Number of operations in the script that are not pushes."""
    sat: Costs
    """Cost of the most expensive satisfaction."""
    dsat: Costs
    """Cost of the most expensive dissatisfaction."""


class Fragment(NamedTuple):
    """A fragment of miniscript: the types that it requires, and functions that compute its type and costs."""

    requires: tuple[tuple[str, ...], ...]
    """The types that each argument may have."""
    type: Callable[[tuple[Type, ...]], str]
    """Function that returns the letters of the type, given the types of the arguments."""
    script: Callable[[tuple[Parts, ...]], Parts]
    """Function that returns the template, given the templates of the arguments."""
    ops: int
    """Number of operations that the fragment adds."""
    sat: Callable[[tuple[MiniscriptNode, ...]], Costs]
    """Function that returns the cost of a satisfaction."""
    dsat: Callable[[tuple[MiniscriptNode, ...]], Costs]
    """Function that returns the cost of a dissatisfaction."""


# Costs


def _op(removed: int) -> Cost:
    """Return the cost of an operation that removes this many items from the stack."""
    return Cost(0, removed, max(removed, 0))


_EMPTY, _PUSH, _POP = _op(0), _op(-1), _op(1)


def _then(*parts: Costs) -> Costs:
    """Return the cost of scripts that are executed in sequence."""
    keys, removed, peak = 0, 0, 0
    for part in reversed(parts):
        if part is None:
            return None
        peak = max(peak, removed + part.peak)
        keys, removed = keys + part.keys, removed + part.removed
    return Cost(keys, removed, peak)


def _either(one: Costs, other: Costs) -> Costs:
    """Return the larger of two costs."""
    if one is None or other is None:
        return one or other
    return Cost(max(one.keys, other.keys), max(one.removed, other.removed), max(one.peak, other.peak))


def _never(nodes: tuple[MiniscriptNode, ...]) -> Costs:
    return None


# Types


def _has(type_: Type, letters: str) -> bool:
    return type_.issuperset(letters)


def _if(condition: bool, letters: str) -> str:
    return letters if condition else ""


def _kept(type_: Type, letters: str) -> str:
    """Return those of the letters that a type contains."""
    return "".join(letter for letter in letters if letter in type_)


def _locks(*types: Type, is_and: bool = False) -> str:
    """Return the letters of timelocks. `is_and` is True if one path may need the first two arguments together."""
    united: Type = frozenset().union(*types)
    is_mixed = is_and and any(
        one in types[first] and other in types[1 - first] for one, other in ("gh", "ij") for first in (0, 1)
    )
    return _kept(united, "ghij") + _if(all("k" in each for each in types) and not is_mixed, "k")


def _one_argument(x: Type, y: Type) -> str:
    """Return "o" if one of two expressions takes one argument from the stack and the other takes none."""
    return _if(("z" in x and "o" in y) or ("o" in x and "z" in y), "o")


def _andor(types: tuple[Type, ...]) -> str:
    x, y, z = types
    return (
        _kept(y & z, "BKV")
        + _kept(x & y & z, "z")
        + _if(("z" in x and "o" in y & z) or ("o" in x and "z" in y & z), "o")
        + _kept(y & z, "u")
        + _kept(z, "d")
        + _if("s" in x or "f" in y, _kept(z, "fe"))
        + _if("s" in x or "s" in y, _kept(z, "s"))
        + _if(_has(x & y & z, "m") and "e" in x and "s" in x | y | z, "m")
        + "x"
        + _locks(x, y, z, is_and=True)
    )


def _and_v(types: tuple[Type, ...]) -> str:
    x, y = types
    return (
        _kept(y, "BKV")
        + _kept(x, "n")
        + _if("z" in x, _kept(y, "n"))
        + _one_argument(x, y)
        + _kept(x & y, "mz")
        + _kept(x | y, "s")
        + _if("f" in y or "s" in x, "f")
        + _kept(y, "ux")
        + _locks(x, y, is_and=True)
    )


def _and_b(types: tuple[Type, ...]) -> str:
    x, y = types
    return (
        "Bux"
        + _one_argument(x, y)
        + _kept(x, "n")
        + _if("z" in x, _kept(y, "n"))
        + _if(_has(x & y, "es"), "e")
        + _kept(x & y, "dzm")
        + _if("f" in x & y or _has(x, "sf") or _has(y, "sf"), "f")
        + _kept(x | y, "s")
        + _locks(x, y, is_and=True)
    )


def _or_b(types: tuple[Type, ...]) -> str:
    x, z = types
    is_sound = "m" in x & z and "e" in x & z and "s" in x | z
    return "Bdux" + _one_argument(x, z) + _kept(x & z, "zse") + _if(is_sound, "m") + _locks(x, z)


def _or_c_or_d(x: Type, z: Type) -> str:
    is_sound = "m" in x & z and "e" in x and "s" in x | z
    return "x" + _if("z" in z, _kept(x, "o")) + _kept(x & z, "zs") + _if(is_sound, "m") + _locks(x, z)


def _or_i(types: tuple[Type, ...]) -> str:
    x, z = types
    return (
        "x"
        + _kept(x & z, "BKVufs")
        + _if("z" in x & z, "o")
        + _if(("e" in x and "f" in z) or ("f" in x and "e" in z), "e")
        + _if("m" in x & z and "s" in x | z, "m")
        + _kept(x | z, "d")
        + _locks(x, z)
    )


def _wrapped(letters: str, kept: str) -> Callable[[tuple[Type, ...]], str]:
    """Return the function that computes the type of a wrapper: its own letters, plus those kept from its argument."""
    return lambda types: letters + _kept(types[0], kept + "ghijk")


# The table of BIP-379 § Translation Table. A cost has the operations of the script in the same order.


def _keeps(nodes: tuple[MiniscriptNode, ...]) -> Costs:
    return nodes[0].sat


def _keeps_dsat(nodes: tuple[MiniscriptNode, ...]) -> Costs:
    return nodes[0].dsat


FRAGMENTS: dict[str, Fragment] = {
    "a": Fragment((("B",),), _wrapped("Wx", "udfems"), lambda s: (b"\x6b", s[0], b"\x6c"), 2, _keeps, _keeps_dsat),
    "s": Fragment((("Bo",),), _wrapped("W", "udfemsx"), lambda s: (b"\x7c", s[0]), 1, _keeps, _keeps_dsat),
    "c": Fragment(
        (("K",),),
        _wrapped("Bus", "ondfem"),
        lambda s: (s[0], b"\xac"),
        1,
        lambda n: _then(n[0].sat, _POP),
        lambda n: _then(n[0].dsat, _POP),
    ),
    "d": Fragment(
        (("Vz",),),
        lambda types: _wrapped("Bndx", "ms")(types) + _if("z" in types[0], "o") + _if("f" in types[0], "e"),
        lambda s: (b"\x76\x63", s[0], b"\x68"),
        3,
        lambda n: _then(_PUSH, _POP, n[0].sat),
        lambda n: _then(_PUSH, _POP),
    ),
    "v": Fragment(
        (("B",),),
        _wrapped("Vfx", "zonms"),
        lambda s: s[0],  # and VERIFY, see _with_verify
        0,
        lambda n: _then(n[0].sat, _POP),
        _never,
    ),
    "j": Fragment(
        (("Bn",),),
        lambda types: _wrapped("Bndx", "oums")(types) + _if("f" in types[0], "e"),
        lambda s: (b"\x82\x92\x63", s[0], b"\x68"),
        4,
        lambda n: _then(_PUSH, _EMPTY, _POP, n[0].sat),
        lambda n: _then(_PUSH, _EMPTY, _POP),
    ),
    "n": Fragment((("B",),), _wrapped("ux", "Bzondfems"), lambda s: (s[0], b"\x92"), 1, _keeps, _keeps_dsat),
    "andor": Fragment(
        (("Bdu",), _ANY, _ANY),
        _andor,
        lambda s: (s[0], b"\x64", s[2], b"\x67", s[1], b"\x68"),
        3,
        lambda n: _either(_then(n[0].sat, _POP, n[1].sat), _then(n[0].dsat, _POP, n[2].sat)),
        lambda n: _then(n[0].dsat, _POP, n[2].dsat),
    ),
    "and_v": Fragment((("V",), _ANY), _and_v, lambda s: (s[0], s[1]), 0, lambda n: _then(n[0].sat, n[1].sat), _never),
    "and_b": Fragment(
        (("B",), ("W",)),
        _and_b,
        lambda s: (s[0], s[1], b"\x9a"),
        1,
        lambda n: _then(n[0].sat, n[1].sat, _POP),
        lambda n: _then(n[0].dsat, n[1].dsat, _POP),
    ),
    "or_b": Fragment(
        (("Bd",), ("Wd",)),
        _or_b,
        lambda s: (s[0], s[1], b"\x9b"),
        1,
        lambda n: _then(_either(_then(n[0].sat, n[1].dsat), _then(n[0].dsat, n[1].sat)), _POP),
        lambda n: _then(n[0].dsat, n[1].dsat, _POP),
    ),
    "or_c": Fragment(
        (("Bdu",), ("V",)),
        lambda types: "Vf" + _or_c_or_d(*types),
        lambda s: (s[0], b"\x64", s[1], b"\x68"),
        2,
        lambda n: _either(_then(n[0].sat, _POP), _then(n[0].dsat, _POP, n[1].sat)),
        _never,
    ),
    "or_d": Fragment(
        (("Bdu",), ("B",)),
        lambda types: "B" + _kept(types[1], "ufde") + _or_c_or_d(*types),
        lambda s: (s[0], b"\x73\x64", s[1], b"\x68"),
        3,
        lambda n: _either(_then(n[0].sat, _PUSH, _POP), _then(n[0].dsat, _EMPTY, _POP, n[1].sat)),
        lambda n: _then(n[0].dsat, _EMPTY, _POP, n[1].dsat),
    ),
    "or_i": Fragment(
        (_ANY, _ANY),
        _or_i,
        lambda s: (b"\x63", s[0], b"\x67", s[1], b"\x68"),
        3,
        lambda n: _then(_POP, _either(n[0].sat, n[1].sat)),
        lambda n: _then(_POP, _either(n[0].dsat, n[1].dsat)),
    ),
}
_WRAPPERS = "asctdvjnlu"
_LEAVES = ("0", "1", "pk", "pkh", "pk_k", "pk_h", "older", "after", *_HASHES, "multi", "multi_a")
_NAMES = (*_LEAVES, "and_n", "thresh", *(name for name in FRAGMENTS if len(name) > 1))


def is_miniscript(name: str) -> bool:
    """Return True if a function with this name, optionally with wrappers, is a fragment of miniscript."""
    wrappers, colon, rest = name.rpartition(":")
    return rest in _NAMES and (not colon or (bool(wrappers) and set(wrappers) <= set(_WRAPPERS)))


def _inner(expression: Expression) -> tuple[Expression, ...]:
    """Return the arguments of an expression that are themselves scripts."""
    name = expression.text.rpartition(":")[2]
    if name == "thresh":
        return (expression.arguments or ())[1:]
    return (expression.arguments or ()) if name in FRAGMENTS or name == "and_n" else ()


class _Reader:
    """Reads the expressions of one script."""

    def __init__(self, reading: Reading, *, is_tapscript: bool) -> None:
        self._reading = reading
        self._is_tapscript = is_tapscript
        self._purpose = KeyPlace.TAPROOT if is_tapscript else KeyPlace.SEGWIT

    def node(self, root: Expression) -> MiniscriptNode:
        """Return the node of an expression. It does not recurse, because scripts may be deeply nested."""
        opened = [(root, iter(_inner(root)), list[MiniscriptNode]())]
        while True:
            expression, inner, nodes = opened[-1]
            child = next(inner, None)
            if child is not None:
                opened.append((child, iter(_inner(child)), []))
                continue
            made = self._node(expression, tuple(nodes))
            opened.pop()
            if not opened:
                return made
            opened[-1][2].append(made)

    def _node(self, expression: Expression, nodes: tuple[MiniscriptNode, ...]) -> MiniscriptNode:
        """Return the node of an expression with its wrappers. `nodes` are the nodes of the scripts in it."""
        wrappers, colon, name = expression.text.rpartition(":")
        at = expression.at
        if colon and (not wrappers or not set(wrappers) <= set(_WRAPPERS)):
            raise fault(at, f"unknown wrapper before ':': the wrappers are the letters {_WRAPPERS}")
        if expression.suffix:
            raise fault(expression.end, "unexpected text after a closing bracket: expected a comma or a bracket")
        if len(wrappers) > _MAX_WRAPPERS:
            raise fault(at, f"at most {_MAX_WRAPPERS} wrappers may stand before ':', not {len(wrappers)}")
        made = self._unwrapped(name, expression, nodes, at + len(wrappers) + len(colon))
        for place in range(len(wrappers) - 1, -1, -1):
            made = self._wrapped(wrappers[place], made, at + place)
        return made

    def _wrapped(self, wrapper: str, inner: MiniscriptNode, at: int) -> MiniscriptNode:
        match wrapper:
            case "t":
                return self._made("and_v", (inner, self._constant("1", at)), at)
            case "l":
                return self._made("or_i", (self._constant("0", at), inner), at)
            case "u":
                return self._made("or_i", (inner, self._constant("0", at)), at)
            case _:
                return self._made(wrapper, (inner,), at)

    def _unwrapped(
        self, name: str, expression: Expression, nodes: tuple[MiniscriptNode, ...], at: int
    ) -> MiniscriptNode:
        arguments = expression.arguments
        if arguments is None:
            if name not in ("0", "1"):
                raise fault(at, "expected a script such as pk(KEY), found a key or a number")
            return self._constant(name, at)
        match name:
            case "pk_k" | "pk_h" | "pk" | "pkh":
                return self._key(name, arguments, at)
            case "older" | "after":
                return self._timelock(name, arguments, at)
            case "sha256" | "hash256" | "ripemd160" | "hash160":
                return self._hash(name, arguments, at)
            case "multi" | "multi_a":
                return self._multi(name, arguments, at)
            case "thresh":
                return self._thresh(arguments, nodes, at)
            case "and_n":
                _expect_arguments(name, arguments, 2, at)
                return self._made("andor", (*nodes, self._constant("0", at)), at)
            case _:
                if name not in FRAGMENTS or len(name) == 1:
                    raise fault(at, self._unknown(name, expression))
                _expect_arguments(name, arguments, len(FRAGMENTS[name].requires), at)
                return self._made(name, nodes, at)

    def _unknown(self, name: str, expression: Expression) -> str:
        if name == "musig":
            return "musig() is not a script but a key: BIP-390 allows it only as a key of tr() and rawtr()"
        if name in ("sortedmulti", "sortedmulti_a"):
            return f"{name}() is not allowed within another script, only on its own"
        where = "in a leaf of tr()" if self._is_tapscript else "in wsh()"
        return (
            f"{expression.shown} is not allowed {where}: expected a miniscript fragment such as pk(KEY) or and_v(X,Y)"
        )

    # Fragments without inner expressions

    def _constant(self, digit: str, at: int) -> MiniscriptNode:
        if digit == "0":
            return MiniscriptNode(at, "0", frozenset("Bzudemsxk"), (b"\x00",), 0, None, _PUSH)
        return MiniscriptNode(at, "1", frozenset("Bzufmxk"), (b"\x51",), 0, _PUSH, None)

    def _key(self, name: str, arguments: tuple[Expression, ...], at: int) -> MiniscriptNode:
        _expect_arguments(name, arguments, 1, at)
        key = read_key(arguments[0], self._purpose, self._reading)
        if name in ("pk", "pk_k"):
            made = MiniscriptNode(at, "pk_k", frozenset("Konudemsxk"), (pushed_key(key),), 0, _PUSH, _PUSH)
        else:
            cost = _then(_PUSH, _EMPTY, _PUSH, _op(2))
            script = (b"\x76\xa9", pushed_key_hash(key), b"\x88")
            made = MiniscriptNode(at, "pk_h", frozenset("Knudemsxk"), script, 3, cost, cost)
        return made if "_" in name else self._made("c", (made,), at)

    def _timelock(self, name: str, arguments: tuple[Expression, ...], at: int) -> MiniscriptNode:
        _expect_arguments(name, arguments, 1, at)
        number = read_number(arguments[0], f"{name}()")
        if not 1 <= number < 1 << 31:
            raise fault(arguments[0].at, f"{name}({number}): expected a number from 1 to 2147483647")
        if name == "older":
            kind, code = ("g" if number & _TIME_FLAG else "h"), b"\xb2"
        else:
            kind, code = ("i" if number >= _TIME_THRESHOLD else "j"), b"\xb1"
        return MiniscriptNode(at, name, frozenset("Bzfmxk" + kind), (pushed_number(number) + code,), 1, _PUSH, None)

    def _hash(self, name: str, arguments: tuple[Expression, ...], at: int) -> MiniscriptNode:
        _expect_arguments(name, arguments, 1, at)
        code, size = _HASHES[name]
        text = arguments[0].text
        if arguments[0].arguments is not None or not re.fullmatch(rf"[0-9a-fA-F]{{{2 * size}}}", text):
            raise fault(arguments[0].at, f"expected {name}(HASH) with {2 * size} hex digits")
        script = b"\x82\x01\x20\x88" + code + bytes((size,)) + bytes.fromhex(text) + b"\x87"
        cost = _then(_PUSH, _PUSH, _op(2), _EMPTY, _PUSH, _POP)
        return MiniscriptNode(at, name, frozenset("Bonudmk"), (script,), 4, cost, None)

    def _multi(self, name: str, arguments: tuple[Expression, ...], at: int) -> MiniscriptNode:
        if (name == "multi_a") != self._is_tapscript:
            other = "multi_a" if self._is_tapscript else "multi"
            where = "a leaf of tr()" if self._is_tapscript else "wsh()"
            self._reading.refuse(
                fault(at, f"{name}() is not allowed in {where}: write {other}(), or nobody could spend the coins")
            )
        most = MAX_MULTI_A_KEYS if name == "multi_a" else MAX_MULTI_KEYS
        needed, keys = read_multi(name, arguments, at, self._purpose, self._reading, most)
        if name == "multi_a":
            cost = Cost(0, len(keys) - 1, len(keys))
            return MiniscriptNode(
                at, name, frozenset("Budemsk"), multi_a_script(needed, keys), len(keys) + 1, cost, cost
            )
        cost = Cost(len(keys), needed, needed + len(keys) + 2)
        return MiniscriptNode(at, name, frozenset("Bnudemsk"), multi_script(needed, keys), 1, cost, cost)

    # Fragments with inner expressions

    def _made(self, name: str, nodes: tuple[MiniscriptNode, ...], at: int) -> MiniscriptNode:
        """Make the node of a fragment from the nodes of its arguments."""
        fragment = FRAGMENTS[name]
        for node, allowed in zip(nodes, fragment.requires, strict=True):
            self._require(name, node, allowed)
        if name in ("andor", "or_i") and not (nodes[-2].type & nodes[-1].type & set("BKV")):
            self._reading.refuse(
                fault(
                    at,
                    f"{name}() needs two scripts of the same type, found {_shown(nodes[-2])} and {_shown(nodes[-1])}",
                )
            )
        type_ = frozenset(fragment.type(tuple(node.type for node in nodes)))
        if name == "d" and self._is_tapscript:
            type_ |= {"u"}  # only tapscript makes MINIMALIF a rule of consensus
        script = fragment.script(tuple(node.script for node in nodes))
        ops = fragment.ops + sum(node.ops for node in nodes)
        if name == "v":
            script, added = _with_verify(nodes[0])
            ops += added
        made = MiniscriptNode(at, name, type_, script, ops, fragment.sat(nodes), fragment.dsat(nodes))
        self._check(made, nodes)
        return made

    def _thresh(self, arguments: tuple[Expression, ...], nodes: tuple[MiniscriptNode, ...], at: int) -> MiniscriptNode:
        if len(arguments) < 2:
            raise fault(at, "expected thresh(NUMBER,SCRIPT,…)")
        needed = read_number(arguments[0], "thresh()")
        if len(arguments) - 1 > _MAX_THRESH:
            raise fault(at, f"thresh() takes at most {_MAX_THRESH} scripts, not {len(arguments) - 1}")
        if not 1 <= needed <= len(nodes):
            raise fault(arguments[0].at, f"thresh() needs {needed} of {len(nodes)} scripts: the number is out of range")
        for place, node in enumerate(nodes):
            self._require("thresh", node, ("Wdu",) if place else ("Bdu",))
        parts = [(node.script, b"\x93") if place else (node.script,) for place, node in enumerate(nodes)]
        made = MiniscriptNode(
            at,
            "thresh",
            _thresh_type(nodes, needed),
            (*parts, pushed_number(needed) + b"\x87"),
            sum(node.ops + 1 for node in nodes),
            *_thresh_costs(nodes, needed),
        )
        self._check(made, nodes)
        return made

    # Rules

    def _require(self, name: str, node: MiniscriptNode, allowed: tuple[str, ...]) -> None:
        """Check that an argument of a fragment has one of the allowed types."""
        if not any(_has(node.type, each) for each in allowed):
            hints = {"V": ": write v: before it", "W": ": write a: or s: before it"}
            hint = hints.get(allowed[0][0], "") if "B" in node.type else ""
            name = f"{name}:" if len(name) == 1 else f"{name}()"
            self._reading.refuse(
                fault(node.at, f"{name} needs a script of type {' or '.join(allowed)}, found {_shown(node)}{hint}")
            )

    def _check(self, made: MiniscriptNode, nodes: tuple[MiniscriptNode, ...]) -> None:
        """Check the rules that a fragment may break even if its arguments obey them."""
        where = f"{made.name}:" if len(made.name) == 1 else f"{made.name}()"
        if "m" not in made.type and all("m" in node.type for node in nodes):
            self._reading.refuse(
                fault(
                    made.at,
                    f"{where} makes the script malleable: other people could change a transaction that spends it",
                )
            )
        if "k" not in made.type and all("k" in node.type for node in nodes):
            self._reading.refuse(
                fault(
                    made.at, f"{where} mixes timelocks in blocks and in time on one path, which can never both be met"
                )
            )

    def _check_distinct(self, keys: list[Key]) -> None:
        """Check that no key occurs twice, for each path of a multipath."""
        for path in range(max((key.paths for key in keys), default=1)):
            seen: set[bytes] = set()
            for key in keys:
                (value,) = key.bind(path)([0])
                if value in seen:
                    self._reading.refuse(
                        fault(
                            key.at,
                            "this key occurs twice in one script: use a different path for one of them, such as <2;3>",
                        )
                    )
                    return
                seen.add(value)

    def check_root(self, node: MiniscriptNode) -> Script:
        """Check the rules for a whole script, and return its template."""
        refuse, at, script = self._reading.refuse, node.at, flattened(node.script)
        where = "a leaf of tr()" if self._is_tapscript else "wsh()"
        if "B" not in node.type:
            why = {"K": "anybody could spend", "V": "nobody could spend"}.get(_shown(node)[:1], "it is incomplete")
            refuse(fault(at, f"{where} needs a script of type B, found {_shown(node)}: {why}"))
        if node.sat is None:
            refuse(fault(at, f"nobody can ever spend this script in {where}"))
        elif "s" not in node.type:
            refuse(fault(at, f"this script in {where} can be spent without a signature"))
        self._check_distinct(keys_of(script))
        self._check_resources(node, size_of(script), where)
        return script

    def _check_resources(self, node: MiniscriptNode, size: int, where: str) -> None:
        refuse, at = self._reading.refuse, node.at
        left = 1 if node.type & set("BKW") else 0
        if self._is_tapscript:
            if node.sat is not None and node.sat.peak + left > _MAX_STACK:
                refuse(fault(at, f"spending this script in {where} needs more than {_MAX_STACK} items on the stack"))
            return
        if size > _MAX_SCRIPT:
            refuse(fault(at, f"the script in {where} is {size:,} bytes long, but nodes relay at most {_MAX_SCRIPT:,}"))
        if node.sat is not None and (ops := node.ops + node.sat.keys) > _MAX_OPS:
            refuse(fault(at, f"the script in {where} executes {ops} operations, but at most {_MAX_OPS} are allowed"))
        if node.sat is not None and (items := node.sat.removed + left) > _MAX_WITNESS_ITEMS:
            refuse(
                fault(
                    at,
                    f"the script in {where} needs {items} witness items, but nodes relay at most {_MAX_WITNESS_ITEMS}",
                )
            )


def _shown(node: MiniscriptNode) -> str:
    """Return a node's type as an error message shows it."""
    return _kept(node.type, "BVKW") + _kept(node.type, "zondu") or "no valid type"


def _with_verify(node: MiniscriptNode) -> tuple[Parts, int]:
    """Append VERIFY to a script, and return the script and the number of operations that this adds.

    If the last operation has a VERIFY form, that form replaces it.
    """
    if "x" in node.type:
        return (node.script, b"\x69"), 1
    heads, script = [], node.script
    while isinstance(script[-1], tuple):
        heads.append(script[:-1])
        script = script[-1]
    last = script[-1]
    assert isinstance(last, bytes), "a script without property x ends with an operation"
    script = (*script[:-1], last[:-1] + bytes((_VERIFY[last[-1]],)))
    for head in reversed(heads):
        script = (*head, script)
    return script, 0


def flattened(parts: Parts) -> Script:
    """Return the template of nested parts."""
    found: list[bytes | Slot] = []
    rest: list[Part] = [parts]
    while rest:
        part = rest.pop()
        if isinstance(part, tuple):
            rest.extend(reversed(part))
        else:
            found.append(part)
    return tuple(found)


def _thresh_type(nodes: tuple[MiniscriptNode, ...], needed: int) -> Type:
    types = [node.type for node in nodes]
    taken = sum(0 if "z" in each else 1 if "o" in each else 2 for each in types)
    signed = sum("s" in each for each in types)
    all_e, all_m = all("e" in each for each in types), all("m" in each for each in types)
    locks = types[0]
    for each in types[1:]:
        locks = frozenset(_locks(locks, each, is_and=needed > 1))
    return frozenset(
        "Bdu"
        + _if(taken == 0, "z")
        + _if(taken == 1, "o")
        + _if(all_e and signed == len(types), "e")
        + _if(all_e and all_m and signed >= len(types) - needed, "m")
        + _if(signed > len(types) - needed, "s")
        + _kept(locks, "ghijk")
    )


def _thresh_costs(nodes: tuple[MiniscriptNode, ...], needed: int) -> tuple[Costs, Costs]:
    """Return the costs of a satisfaction and of a dissatisfaction of thresh()."""
    end = _then(_PUSH, _POP)
    ways: dict[int, Costs] = {0: _EMPTY}  # the cost of the nodes so far, by the number of satisfied nodes
    none: Costs = _EMPTY
    for place, node in enumerate(nodes):
        add = _POP if place else _EMPTY
        least = needed - (len(nodes) - place - 1)  # the nodes that follow can satisfy only the rest
        sat, dsat = _then(node.sat, add), _then(node.dsat, add)
        none = _then(none, dsat)
        ways = {
            number: _either(_then(ways.get(number), dsat), _then(ways.get(number - 1), sat))
            for number in range(max(least, 0), min(place + 1, needed) + 1)
        }
    return _then(ways.get(needed), end), _then(none, end)


# Parts that descriptors outside miniscript share


def _expect_arguments(name: str, arguments: tuple[Expression, ...], count: int, at: int) -> None:
    if len(arguments) != count:
        raise fault(at, f"{name}() takes {count} arguments, not {len(arguments)}")


def read_number(expression: Expression, owner: str) -> int:
    """Return the value of a number expression. `owner` names the function. Raises DescriptorError."""
    if expression.arguments is not None or not re.fullmatch(r"\d{1,10}", expression.text, re.ASCII):
        raise fault(expression.at, f"expected a number as the first argument of {owner}")
    return int(expression.text)


def read_multi(
    name: str, arguments: tuple[Expression, ...], at: int, purpose: KeyPlace, reading: Reading, most: int
) -> tuple[int, tuple[Key, ...]]:
    """Return the number of signatures and the keys of multi(), sortedmulti(), multi_a() or sortedmulti_a().

    `most` is the largest number of keys. Raises DescriptorError if a number is out of range.
    """
    if len(arguments) < 2:
        raise fault(at, f"expected {name}(NUMBER,KEY,…)")
    needed, count = read_number(arguments[0], f"{name}()"), len(arguments) - 1
    if count > most:
        raise fault(at, f"{name}() takes at most {most} keys here, not {count}")
    if not needed:
        raise fault(arguments[0].at, f"{name}() must require at least 1 signature, not 0")
    if needed > count:
        raise fault(arguments[0].at, f"{name}() requires {needed} signatures, but has only {counted(count, 'key')}")
    return needed, tuple(read_key(argument, purpose, reading) for argument in arguments[1:])


def multi_script(needed: int, keys: tuple[Key, ...], *, is_sorted: bool = False) -> Script:
    """Return the template of multi() or sortedmulti() (BIP-383): NUMBER KEY … COUNT CHECKMULTISIG."""
    return pushed_number(needed), pushed_keys(keys, is_sorted=is_sorted), pushed_number(len(keys)) + b"\xae"


def multi_a_script(needed: int, keys: tuple[Key, ...], *, is_sorted: bool = False) -> Script:
    """Return the template of multi_a() or sortedmulti_a() (BIP-387)."""
    return summed_keys(keys, is_sorted=is_sorted), pushed_number(needed) + b"\x9c"


def read_node(expression: Expression, reading: Reading, *, is_tapscript: bool) -> MiniscriptNode:
    """Return the node of a miniscript, which may be part of a script. `is_tapscript` is True in a leaf of tr().

    Raises DescriptorError if the expression is not miniscript.
    """
    return _Reader(reading, is_tapscript=is_tapscript).node(expression)


def read_miniscript(expression: Expression, reading: Reading, *, is_tapscript: bool) -> Script:
    """Return the template of a miniscript in wsh(), or in a leaf of tr() if `is_tapscript`.

    Calls `reading.refuse` for each rule that the script breaks. Raises DescriptorError if the expression is not
    miniscript.
    """
    reader = _Reader(reading, is_tapscript=is_tapscript)
    node = reader.node(expression)
    return reader.check_root(node)
