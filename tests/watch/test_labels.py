"""Labels in JSON Lines (BIP-329): every valid record survives, and each malformed line has an error of its own."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from spvfilter.errors import FormatError, ParameterError, WalletFileWarning
from spvfilter.watch import labels as module
from spvfilter.watch.labels import MAX_LINE, Label, parse_labels, read_labels, write_labels

TXID = "f91d0a8a78462bc59398f2c5d7a84fcff491c26ba54c4833478b202796c8aafd"
ADDRESS = "bc1q34aq5drpuwy3wgl9lhup9892qp6svr8ldzyy7c"
XPRV = "xprv9s21ZrQH143K3QTDL4LXw2F7HEK3wJUD2nW2nRk4stbPy6cq3jPPqjiChkVvvNKmPGJxWUtg6LnF5kejMRNNU3TGtRBeJgk33yuGBxrMPHi"
WIF = "KwdMAjGmerYanjeui5SHS7JkmpZvVipYvB2LJGU1ZxJwYvP98617"
EXAMPLES = [  # the records of BIP-329 § Test Vectors
    {"type": "tx", "ref": TXID, "label": "Transaction", "origin": "wpkh([d34db33f/84'/0'/0'])"},
    {"type": "addr", "ref": ADDRESS, "label": "Address"},
    {
        "type": "pubkey",
        "ref": "0283409659355b6d1cc3c32decd5d561abaac86c37a353b52895a5e6c196d6f448",
        "label": "Public Key",
    },
    {"type": "input", "ref": f"{TXID}:0", "label": "Input"},
    {"type": "output", "ref": f"{TXID}:1", "label": "Output", "spendable": False},
    {"type": "xpub", "ref": "xpub661MyMwAqRbcFtXgS5sYJABqqG9YLmC4Q1Rdap9gSE8Nq", "label": "Extended Public Key"},
    {"type": "tx", "ref": TXID, "label": "Transaction", "height": 4, "rate": {"USD": 1.5}, "fmv": [None, True]},
    {"type": "future", "ref": "anything", "other": {"deep": ["x"]}},
]

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
words = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
txids = st.binary(min_size=32, max_size=32).map(bytes.hex)
outpoints = st.builds("{}:{}".format, txids, st.integers(0, (1 << 32) - 1))
refs = st.one_of(
    st.tuples(st.just("tx"), txids),
    st.tuples(st.sampled_from(["input", "output"]), outpoints),
    st.tuples(st.just("addr"), st.sampled_from([ADDRESS, "1BoatSLRHtKNngkdXEeobR76b53LETtpyT"])),
    st.tuples(st.sampled_from(["xpub", "future", "tx2"]), words.filter(lambda word: "prv" not in word)),
)


@st.composite
def records(draw: st.DrawFn) -> Label:
    """A valid label of any type."""
    kind, ref = draw(refs)
    other = draw(st.dictionaries(words, values, max_size=3))
    for name in ("type", "ref", "label", "origin", "spendable"):
        other.pop(name, None)
    spendable = draw(st.none() | st.booleans()) if kind == "output" else None
    try:
        return Label(kind, ref, draw(st.none() | text), draw(st.none() | words), spendable, other)
    except ParameterError as error:
        assume("looks like it contains a private key" not in str(error))
        raise


@pytest.mark.slow
@given(st.lists(records(), max_size=5))
def test_labels_survive_writing_and_reading(labels: list[Label]) -> None:
    assert parse_labels(b"".join(bytes(label) + b"\n" for label in labels)) == labels


anything = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["tx", "addr", "output", "xpub", "x"]) | values,
        "ref": refs.map(lambda ref: ref[1]) | values,
    },
    optional={"label": values, "origin": values, "spendable": values, "note": values},
)


@given(st.binary(max_size=50) | st.one_of(values, anything).map(lambda value: json.dumps(value).encode()))
def test_any_line_is_a_label_or_a_fault(line: bytes) -> None:
    try:
        found = parse_labels(line.replace(b"\n", b"").replace(b"\r", b""))
    except FormatError as error:
        assert "line 1: " in str(error)
    else:
        assert [Label.parse(bytes(label)) for label in found] == found


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: str(record["type"]))
def test_records_of_the_bip_are_written_unchanged(record: dict[str, object]) -> None:
    assert json.loads(bytes(Label.parse(json.dumps(record).encode()))) == record


def test_files_of_other_programs_are_read(tmp_path: Path) -> None:
    lines = b'\xef\xbb\xbf{"type":"tx","ref":"%b"}\r\n\r\n{"spendable":"false","type":"output","ref":"%b:01"}' % (
        TXID.upper().encode(),
        TXID.encode(),
    )
    (tmp_path / "labels.jsonl").write_bytes(lines)
    assert read_labels(tmp_path / "labels.jsonl") == [Label("tx", TXID), Label("output", f"{TXID}:1", spendable=False)]
    assert Label("addr", ADDRESS.upper(), " shop ") == Label("addr", ADDRESS, "shop")


def test_written_file_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    for labels in ([Label("tx", TXID, "old")], [Label("tx", TXID, "новый")]):
        write_labels(path, labels)
        assert read_labels(path) == labels
    assert path.stat().st_mode & 0o777 == 0o600


FAULTS = [
    (b"no json", "not JSON"),
    (b"\xff", "not UTF-8"),
    (b"[]", "not a JSON object"),
    (b"[" * 50_000, "not JSON"),
    (b'{"ref":"x"}', "'type' is missing"),
    (b'{"type":"tx"}', "'ref' is missing"),
    (b'{"type":"tx","ref":"zz"}', "64 hex digits"),
    (b'{"type":"tx","ref":5}', "'ref' must be printable text"),
    (b'{"type":"a\\u0000","ref":"x"}', "'type' must be printable text"),
    (b'{"type":"output","ref":"%b"}' % TXID.encode(), "TXID:INDEX"),
    (b'{"type":"input","ref":"%b:4294967296"}' % TXID.encode(), "output index"),
    (b'{"type":"pubkey","ref":"05"}', "a public key must be 64"),
    (b'{"type":"x","ref":"x","label":7}', "'label' must be text, not int"),
    (b'{"type":"x","ref":"x","label":"a\\u0000b"}', "surrogates or NUL"),
    (b'{"type":"x","ref":"x","label":"\\ud800"}', "surrogates"),
    (b'{"type":"x","ref":"x","origin":""}', "'origin' must be printable text"),
    (b'{"type":"output","ref":"%b:0","spendable":"no"}' % TXID.encode(), "'spendable' must be true or false"),
    (b'{"type":"x","ref":"x","height":NaN}', "not JSON"),
    (b'{"type":"x","ref":"x","height":1e999}', "extra field"),
    (b'{"type":"x","ref":"x","note":"\\udfff"}', "extra field"),
    (b'{"type":"x","ref":"x","label":"%b"}' % (b"a" * MAX_LINE), "at most 100,000 bytes"),
    (b'{"type":"xpub","ref":"%b"}' % XPRV.encode(), "private key"),
    (b'{"type":"tx","ref":"%b","label":"my key: %b"}' % (TXID.encode(), XPRV.encode()), "private key"),
    (b'{"type":"tx","ref":"%b","note":["%b"]}' % (TXID.encode(), WIF.encode()), "private key"),
]


@pytest.mark.parametrize(("line", "fault"), FAULTS)
def test_malformed_line_is_named_by_its_number(line: bytes, fault: str) -> None:
    good = bytes(Label("tx", TXID, "rent"))
    with pytest.warns(WalletFileWarning) as caught:
        assert parse_labels(b"\n".join([good, line, good])) == [Label("tx", TXID, "rent")] * 2
    (warning,) = caught
    assert "1 line was left out of the labels: line 2: " in str(warning.message)
    assert fault in str(warning.message)
    assert "line 1" not in str(warning.message)
    assert XPRV not in str(warning.message)
    with pytest.raises(FormatError) as error:
        parse_labels(b"\n" + line)
    assert (error.value.offset, fault in str(error.value)) == (1, True)


def test_lines_may_end_in_cr_alone() -> None:
    assert parse_labels(b"\r".join([bytes(Label("tx", TXID, "rent"))] * 2)) == [Label("tx", TXID, "rent")] * 2


def test_every_malformed_line_is_counted() -> None:
    with pytest.raises(FormatError, match=r"line 1: .*; line 20: .*; and 5 more lines$"):
        parse_labels(b"x\n" * 25)


def test_too_large_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LABEL_FILE", 100)
    with pytest.raises(FormatError, match="more than 100 bytes"):
        read_labels(io.BytesIO(b" " * 101))
    monkeypatch.setattr(module, "MAX_LABELS", 2)
    with pytest.raises(FormatError, match="more than 2 records"):
        parse_labels(b'{"type":"x","ref":"x"}\n' * 3)


def test_constructed_label_is_checked() -> None:
    with pytest.raises(ParameterError, match="must not be named 'label'"):
        Label("tx", TXID, other={"label": "x"})
    with pytest.raises(ParameterError, match="'spendable'"):
        Label("tx", TXID, spendable=False)
    with pytest.raises(ParameterError, match="extra field"):
        Label("tx", TXID, other={"x": object()})
    with pytest.raises(ParameterError, match=r"bytes long, not 100,0\d\d"):
        Label("tx", TXID, other={"further": "a" * MAX_LINE})
