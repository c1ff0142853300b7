"""Encrypted transport of messages (BIP-324, version 2), without sockets.

The connection starts with a key exchange. Each side sends, in this order:

| bytes | field |
|---|---|
| 64 | public key in the ElligatorSwift encoding, which looks like random bytes |
| 0 to 4,095 | garbage: random bytes of any length |
| 16 | garbage terminator, a value that both sides derive from the shared secret |
| | packets: first the version packet, whose contents have no meaning yet, then messages |

A packet is encrypted (ChaCha20 and ChaCha20-Poly1305). Both ciphers change their key after every 224 packets:

| bytes | field |
|---|---|
| 3 | length of the contents, u24 LE, encrypted separately |
| 1 | header: 0x80 marks a decoy, which the receiver ignores |
| length | contents: the id of the command (1 byte), or 0 and the command (12 bytes); then the payload |
| 16 | tag, which proves that nobody changed the packet |

The sender's first packet also authenticates the sender's garbage. The encryption hides messages from passive listeners,
but does not authenticate the peer.
"""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING

from spvfilter._public import deferred, public
from spvfilter.errors import EnvelopeError
from spvfilter.protocol import BASIC_FILTER_TYPE, COMMAND_SIZE, HASH_SIZE, MAX_PAYLOAD_SIZE
from spvfilter.wire.codec import Filters, Frame, check_magic, check_message, command_text
from spvfilter.wire.events import Role
from spvfilter.wire.transport import Transport, check_installed
from spvfilter.wire.wrongprotocol import is_signature, known_protocol, wrong_protocol

if TYPE_CHECKING:
    from btclib_secp256k1 import ellswift
    from cryptography import exceptions
    from cryptography.hazmat.primitives import ciphers
    from cryptography.hazmat.primitives.ciphers import aead, algorithms
else:
    ellswift = deferred("btclib_secp256k1.ellswift")
    exceptions = deferred("cryptography.exceptions")
    ciphers = deferred("cryptography.hazmat.primitives.ciphers")
    aead = deferred("cryptography.hazmat.primitives.ciphers.aead")
    algorithms = deferred("cryptography.hazmat.primitives.ciphers.algorithms")

KEY_SIZE = 64  # Bytes of a public key in the ElligatorSwift encoding.
MAX_GARBAGE = 4_095  # Most bytes of garbage that one side sends.
TERMINATOR_SIZE = 16  # Bytes of a garbage terminator.
REKEY_INTERVAL = 224  # Packets after which a cipher changes its key.
LENGTH_SIZE = 3  # Bytes of a packet's encrypted length.
TAG_SIZE = 16  # Bytes of a packet's tag.
MAX_CONTENTS = 1 + COMMAND_SIZE + MAX_PAYLOAD_SIZE  # Bytes of a packet's contents, Core net.cpp MAX_CONTENTS_LEN.
# Bytes that a peer may send in packets until its version packet ends (our choice). Core has no limit for decoys.
MAX_EARLY_PACKETS = 65_536
OVERHEAD = LENGTH_SIZE + 1 + TAG_SIZE  # Bytes of a packet in addition to its contents.

_DECOY = 0x80  # bit of a packet's header
_AT_ONCE = 1 << 16  # bytes of packets that one call decrypts, if a packet is not longer (our choice)
_SALT = b"bitcoin_v2_shared_secret"

_COMMANDS = (
    "addr block blocktxn cmpctblock feefilter filteradd filterclear filterload getblocks getblocktxn getdata getheaders"
    " headers inv mempool merkleblock notfound ping pong sendcmpct tx getcfilters cfilter getcfheaders cfheaders"
    " getcfcheckpt cfcheckpt addrv2"
)
# Commands by their id, BIP-324 § v2 Bitcoin P2P message structure.
SHORT_IDS: Mapping[int, str] = dict(enumerate(_COMMANDS.split(), 1))
_ID_OF = {command: bytes((number,)) for number, command in SHORT_IDS.items()}
_CFILTER = _ID_OF["cfilter"][0]


class Keys:
    """Keys of one connection, derived from the shared secret by HKDF-SHA256 (BIP-324 § Keys and session ID derivation).

    Args:
        secret: The shared secret of the key exchange, 32 bytes.
        magic: The 4 magic bytes of the network.
    """

    def __init__(self, secret: bytes, magic: bytes) -> None:
        extracted = hmac.digest(_SALT + magic, secret, "sha256")

        def expand(info: bytes) -> bytes:
            return hmac.digest(extracted, info + b"\x01", "sha256")

        self.lengths: dict[Role, bytes] = {
            Role.OUTBOUND: expand(b"initiator_L"),
            Role.INBOUND: expand(b"responder_L"),
        }
        """Keys of the length cipher, keyed by the sending side."""
        self.packets: dict[Role, bytes] = {
            Role.OUTBOUND: expand(b"initiator_P"),
            Role.INBOUND: expand(b"responder_P"),
        }
        """Keys of the packet cipher, keyed by the sending side."""
        terminators = expand(b"garbage_terminators")
        self.terminators: dict[Role, bytes] = {
            Role.OUTBOUND: terminators[:TERMINATOR_SIZE],
            Role.INBOUND: terminators[TERMINATOR_SIZE:],
        }
        """Garbage terminators, keyed by the sending side."""
        self.session_id: bytes = expand(b"session_id")
        """Id of the connection, the same on both sides. Users can compare it to detect an attacker in the middle."""


def length_masks(key: bytes) -> Iterator[int]:
    """Yield a number for each packet, to XOR with the packet's length (BIP-324 FSChaCha20)."""
    size = LENGTH_SIZE * REKEY_INTERVAL
    for epoch in count():
        cipher = ciphers.Cipher(algorithms.ChaCha20(key, bytes(8) + epoch.to_bytes(8, "little")), None)
        stream = cipher.encryptor().update(bytes(size + len(key)))
        yield from (int.from_bytes(stream[at : at + LENGTH_SIZE], "little") for at in range(0, size, LENGTH_SIZE))
        key = stream[size:]


def packet_ciphers(key: bytes) -> Iterator[tuple[aead.ChaCha20Poly1305, bytes]]:
    """Yield the cipher and the nonce for each packet (BIP-324 FSChaCha20Poly1305)."""
    for epoch in count():
        cipher, end = aead.ChaCha20Poly1305(key), epoch.to_bytes(8, "little")
        for number in range(REKEY_INTERVAL):
            yield cipher, number.to_bytes(4, "little") + end
        key = cipher.encrypt(b"\xff" * 4 + end, bytes(len(key)), None)[: len(key)]


class PacketEncoder:
    """Encrypts the packets that one side sends."""

    def __init__(self, keys: Keys, sender: Role) -> None:
        self._masks = length_masks(keys.lengths[sender])
        self._ciphers = packet_ciphers(keys.packets[sender])

    def encode(self, contents: bytes, authenticated: bytes = b"", *, is_decoy: bool = False) -> bytes:
        """Return the next packet. It also authenticates the bytes in `authenticated` without containing them."""
        length = len(contents) ^ next(self._masks)
        cipher, nonce = next(self._ciphers)
        header = bytes((_DECOY if is_decoy else 0,))
        return length.to_bytes(LENGTH_SIZE, "little") + cipher.encrypt(nonce, header + contents, authenticated)


class _Awaited(Enum):
    """The part of the stream that comes next."""

    KEY = "key"
    GARBAGE = "garbage"
    PACKETS = "packets"


@public
class V2Stream:
    """An encrypted stream of messages (BIP-324) in both directions. Pass it to `Session` for an encrypted connection.

    It needs the `bip324` extra. The first byte that was changed, lost or moved ends the stream.

    Args:
        magic: The 4 magic bytes of the network.
        role: `Role.OUTBOUND` if this side opened the connection, else `Role.INBOUND`.
        draw_bytes: Function that returns a given number of random bytes, such as `secrets.token_bytes`.
        limits: Longest payload of each command, in bytes; the default is 4,000,000.

    Raises:
        ParameterError: The magic is not 4 bytes long, or the extra is not installed.
    """

    transport: Transport = Transport.V2
    """Kind of the stream."""

    def __init__(
        self, magic: bytes, role: Role, draw_bytes: Callable[[int], bytes], limits: Mapping[str, int] | None = None
    ) -> None:
        check_magic(magic)
        check_installed("an encrypted connection")
        self.outgoing: bytearray = bytearray()
        """Bytes to write to the socket. The caller removes what it has taken."""
        self.broken: EnvelopeError | None = None
        """The error that ended the stream for good, or None while the stream can be decoded."""
        self.joins_filters: bool = False
        """True if `next_item` returns consecutive cfilter messages as one list."""
        self.session_id: bytes | None = None
        """Id of the connection, 32 bytes, or None before the key exchange. It is the same on both sides."""
        self.is_established: bool = False
        """True once the peer's version packet has arrived, which proves that the peer has the keys."""
        self._magic = bytes(magic)
        self._role = role
        self._limits = limits or {}
        self._private_key, public_key = _create_key(draw_bytes)
        self._public_key = public_key
        self._garbage = draw_bytes(int.from_bytes(draw_bytes(2), "little") % (MAX_GARBAGE + 1))
        self.outgoing += public_key
        # Bytes of the garbage that were sent. The initiator sends it after the peer's key, because bcoin bans a peer
        # that sends it ten headers that it cannot read.
        self._garbage_sent = 0
        if role is Role.INBOUND:
            self._send_garbage()
        self._unsent: list[bytes] = []  # contents of packets that wait for the keys
        self._awaited = _Awaited.KEY
        self._encoder: PacketEncoder
        self._terminator: bytes
        self._masks: Iterator[int]
        self._ciphers: Iterator[tuple[aead.ChaCha20Poly1305, bytes]]
        self._buffer = bytearray()
        self._first = b""  # The first bytes that the peer sent, until its version packet.
        self._searched = 0  # Bytes of the garbage that contain no terminator.
        self._authenticated: bytes | None = None  # The peer's garbage, until its first packet.
        self._early = 0  # Bytes of packets before the end of the peer's version packet.
        self._size: int | None = None  # Bytes of the next packet without its length, once the length is known.
        self._items: deque[Frame | Filters | EnvelopeError] = deque()
        self._items_size = 0  # Bytes of the packets that the items come from.
        self._joined: Filters | None = None  # The last item, if another filter can join it.

    @property
    def buffered(self) -> int:
        """Number of bytes that the stream has received but not yet returned in messages."""
        decrypted = self._items_size if self._items else 0
        return len(self._buffer) + decrypted + (LENGTH_SIZE if self._size is not None else 0)

    @property
    def other_protocol(self) -> str | None:
        """The text of an error about the protocol that the peer's first bytes belong to.

        None if that protocol is unknown, or once the peer has proved to have the keys.
        """
        return known_protocol(self._first[:4], self._magic)

    # Sending

    def prompt(self) -> None:
        """Add a blank line to the garbage, so that a server for another protocol answers."""
        line_end = b"\r\n\r\n"
        if self._awaited is _Awaited.KEY and len(self._garbage) + len(line_end) <= MAX_GARBAGE:
            sent = self._garbage_sent
            self._garbage = self._garbage[:sent] + line_end + self._garbage[sent:]
            self._garbage_sent += len(line_end)
            self.outgoing += line_end

    def _send_garbage(self) -> None:
        """Send the rest of the garbage."""
        self.outgoing += self._garbage[self._garbage_sent :]
        self._garbage_sent = len(self._garbage)

    def send(self, command: str, payload: bytes) -> None:
        """Add a message to `outgoing`. Until the key exchange, it is held back.

        Raises ParameterError in the same cases as `encode_message`.
        """
        check_message(command, payload)
        number = _ID_OF.get(command)
        contents = (number or b"\0" + command.encode("ascii").ljust(COMMAND_SIZE, b"\0")) + payload
        if self._awaited is _Awaited.KEY:
            self._unsent.append(contents)
        else:
            self.outgoing += self._encoder.encode(contents)

    # Receiving

    def close(self) -> None:
        """Discard all received bytes. The stream ignores any that arrive later."""
        self._buffer = bytearray()
        self._items.clear()

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add the next bytes of the stream. After an error that ended the stream they are discarded."""
        if self.broken is not None:
            return
        self._buffer += data
        if not self.is_established:
            self._first += bytes(data[: COMMAND_SIZE + 4 - len(self._first)])
            self._shake_hands()

    @property
    def next_command(self) -> str | None:
        """Command of the next message, or None if that message is incomplete or invalid."""
        if not self._items:
            self._decrypt()
        item = self._items[0] if self._items else None
        return item.command if isinstance(item, Frame) else "cfilter" if isinstance(item, list) else None

    def next_item(self) -> Frame | Filters | None:
        """Return the next message or a list of filters from the next cfilter messages, or None until it has arrived.

        It returns a list only if `joins_filters` is True. Raises EnvelopeError:

        - A message with an invalid command is dropped, as in Core. The next call continues after it.
        - Every other fault ends the stream. Every later call raises the same error.
        """
        if not self._items:
            self._decrypt()
        if self._items:
            item = self._items.popleft()
            if isinstance(item, EnvelopeError):
                raise item
            return item
        if self.broken is not None:
            raise self.broken.with_traceback(None)
        return None

    def _shake_hands(self) -> None:
        """Take the peer's key, its garbage and the terminator from the buffer once they have arrived."""
        if self._role is Role.OUTBOUND and self._first[:4] == self._magic:
            self._break(str(self.other_protocol), "transport")
        elif self._role is Role.OUTBOUND and is_signature(self._first[:4]):
            self._break(wrong_protocol(self._first[:4], self._magic), "magic")
        elif self._awaited is _Awaited.KEY and len(self._buffer) >= KEY_SIZE:
            self._exchange_keys(bytes(self._buffer[:KEY_SIZE]))
        if self._awaited is not _Awaited.GARBAGE:
            return
        end = self._buffer.find(self._terminator, self._searched, MAX_GARBAGE + TERMINATOR_SIZE)
        if end >= 0:
            self._authenticated = bytes(self._buffer[:end])
            del self._buffer[: end + TERMINATOR_SIZE]
            self._awaited = _Awaited.PACKETS
        elif len(self._buffer) >= MAX_GARBAGE + TERMINATOR_SIZE:
            fault = f"no garbage terminator within {MAX_GARBAGE} bytes of garbage: the peer does not support BIP-324"
            self._break(self.other_protocol or fault, "garbage")
        else:
            self._searched = max(0, len(self._buffer) - TERMINATOR_SIZE + 1)

    def _exchange_keys(self, peer_key: bytes) -> None:
        """Derive the keys from the peer's public key, and send the terminator and the version packet."""
        is_initiator = self._role is Role.OUTBOUND
        if not is_initiator and self._first[4:] == b"version".ljust(COMMAND_SIZE, b"\0"):
            self._break(wrong_protocol(self._first[:4], self._magic), "magic")
            return
        del self._buffer[:KEY_SIZE]
        pair = (self._public_key, peer_key) if is_initiator else (peer_key, self._public_key)
        secret = ellswift.xdh(*pair, self._private_key, 0 if is_initiator else 1)
        self._private_key = b""
        keys, peer = Keys(secret, self._magic), Role.INBOUND if is_initiator else Role.OUTBOUND
        self.session_id, self._terminator = keys.session_id, keys.terminators[peer]
        self._encoder = PacketEncoder(keys, self._role)
        self._masks, self._ciphers = length_masks(keys.lengths[peer]), packet_ciphers(keys.packets[peer])
        self._awaited = _Awaited.GARBAGE
        self._send_garbage()
        self.outgoing += keys.terminators[self._role] + self._encoder.encode(b"", self._garbage)
        for contents in self._unsent:
            self.outgoing += self._encoder.encode(contents)
        self._unsent.clear()

    def _decrypt(self) -> None:
        """Decrypt the next packets of the buffer, and put their messages into `_items`.

        It decrypts about 64 KiB, or more if these contain only decoys.
        """
        if self.broken is not None or self._awaited is not _Awaited.PACKETS:
            return
        if self._size is not None and len(self._buffer) < self._size:
            return
        with memoryview(self._buffer) as packets:
            at = self._decrypt_from(packets)
        del self._buffer[:at]
        self._items_size, self._joined = at, None

    def _decrypt_from(self, packets: memoryview) -> int:
        """Decrypt packets in a buffer as `_decrypt` does, and return the number of bytes taken from it."""
        at, end, size = 0, len(packets), self._size
        masks, each_cipher = self._masks, self._ciphers
        while (at < _AT_ONCE or not self._items) and self.broken is None:
            if size is None:
                if end - at < LENGTH_SIZE:
                    break
                length = int.from_bytes(packets[at : at + LENGTH_SIZE], "little") ^ next(masks)
                at += LENGTH_SIZE
                size = 1 + length + TAG_SIZE
                if not self._accepts(length):
                    break
            if end - at < size:
                break
            cipher, nonce = next(each_cipher)
            try:
                plain = cipher.decrypt(nonce, packets[at : at + size], self._authenticated)
            except exceptions.InvalidTag:
                self._break("a packet has a wrong tag: a byte of the stream was changed or is missing", "tag")
                break
            at += size
            size = self._authenticated = None
            if plain[0] & _DECOY:
                continue
            if self.is_established:
                self._take(plain)
            else:
                self.is_established, self._first = True, b""
        self._size = None if self.broken is not None else size
        return at

    def _accepts(self, length: int) -> bool:
        """Return True if the next packet may have contents of this length; otherwise end the stream."""
        if length > MAX_CONTENTS:
            self._break(f"the contents of a packet must be at most {MAX_CONTENTS} bytes long, not {length}", "length")
        elif not self.is_established:  # else a peer could send decoys without end
            self._early += length + OVERHEAD
            if self._early > MAX_EARLY_PACKETS:
                most = (
                    f"the peer sent more than {MAX_EARLY_PACKETS} bytes of packets before the end of the version packet"
                )
                self._break(most, "length")
        return self.broken is None

    def _take(self, plain: bytes) -> None:
        """Put the message in a decrypted packet, or the error in it, into `_items`."""
        if self.joins_filters and (found := _filter_in(plain)) is not None:
            if self._joined is None:
                self._joined = []
                self._items.append(self._joined)
            self._joined.append(found)
            return
        self._joined = None
        number = plain[1] if len(plain) > 1 else None
        if number:
            command, at = SHORT_IDS.get(number), 2
        else:
            at = 2 + COMMAND_SIZE
            command = command_text(plain[2:at]) if len(plain) >= at else None
        if command is None:
            fault = f"the {len(plain) - 1} bytes of contents of a packet do not begin with a known command"
            self._items.append(EnvelopeError(fault, field="command"))
        elif len(plain) - at > (limit := self._limits.get(command, MAX_PAYLOAD_SIZE)):
            self._break(f"{command} must be at most {limit} bytes long, not {len(plain) - at}", "length")
        else:
            self._items.append(Frame(command, plain[at:]))

    def _break(self, message: str, field: str) -> None:
        """End the stream with an error, which `next_item` raises after the messages that came before it."""
        self.broken = EnvelopeError(message, field=field)
        self._size = None
        self._buffer = bytearray()


def _create_key(draw_bytes: Callable[[int], bytes]) -> tuple[bytes, bytes]:
    """Create a private key, and return it with its public key in the ElligatorSwift encoding."""
    while True:
        private_key = draw_bytes(32)
        try:
            return private_key, ellswift.create(private_key, draw_bytes(32))
        except ValueError:  # 0, or a number above the order of the curve: nearly impossible
            continue


def _filter_in(plain: bytes) -> tuple[bytes, bytes] | None:
    """Return the block hash and the filter of a decrypted packet, or None if it isn't a valid cfilter message."""
    at = 3 + HASH_SIZE  # header, id and type of the filter come first
    if len(plain) <= at or plain[1] != _CFILTER or plain[2] != BASIC_FILTER_TYPE:
        return None
    size, width = plain[at], 1
    if size == 0xFD:
        size, width = int.from_bytes(plain[at + 1 : at + 3], "little"), 3
    if (width == 3 and size < 0xFD) or (size >= 0xFE and width == 1) or len(plain) != at + width + size:
        return None  # parse_message parses it, or names the fault
    return plain[3:at], plain[at + width :]
