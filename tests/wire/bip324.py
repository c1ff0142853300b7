"""A second implementation of BIP-324 for tests, in pure Python, written from the text of the BIP.

It uses no code of the package and none of its libraries: curve, ChaCha20, Poly1305 and HKDF are here.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Iterator
from itertools import count

P = 2**256 - 2**32 - 977  # the field of secp256k1
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
MINUS_3_SQRT = pow(P - 3, (P + 1) // 4, P)
HALF = (P + 1) // 2
REKEY = 224
Point = tuple[int, int] | None


# secp256k1


def root(a: int) -> int | None:
    found = pow(a, (P + 1) // 4, P)
    return found if found * found % P == a % P else None


def curve(x: int) -> int:
    return (pow(x, 3, P) + 7) % P


def plus(a: Point, b: Point) -> Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % P == 0:
            return None
        slope = 3 * a[0] * a[0] * pow(2 * a[1], -1, P) % P
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, P) % P
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def times(number: int, point: Point) -> Point:
    found: Point = None
    while number:
        if number & 1:
            found = plus(found, point)
        point, number = plus(point, point), number >> 1
    return found


# ElligatorSwift


def xswiftec(u: int, t: int) -> int:
    """The X coordinate that (u, t) encodes."""
    u, t = u % P or 1, t % P or 1
    if (curve(u) + t * t) % P == 0:
        t = 2 * t % P
    big_x = (curve(u) - t * t) * pow(2 * t, -1, P) % P
    big_y = (big_x + t) * pow(MINUS_3_SQRT * u, -1, P) % P
    slope = big_x * pow(big_y, -1, P)
    for x in (u + 4 * big_y * big_y, (-slope - u) * HALF, (slope - u) * HALF):
        if root(curve(x)) is not None:
            return x % P
    raise AssertionError("one of the three is on the curve")


def encoded(x: int, rng: random.Random) -> bytes:
    """A random (u, t) that encodes x: with x = u + 4 Y**2, t solves a quadratic equation."""
    while True:
        u = rng.randrange(1, P)
        big_y = root((x - u) * HALF * HALF)
        if big_y is None:
            continue
        half_sum = MINUS_3_SQRT * u * big_y
        difference = root(half_sum * half_sum - curve(u))
        if difference is None:
            continue
        t = (half_sum + difference) % P
        if t and xswiftec(u, t) == x:
            return u.to_bytes(32, "big") + t.to_bytes(32, "big")


def decoded(key: bytes) -> Point:
    """Return a point of an encoded key. The other point leads to the same X coordinate of a product."""
    x = xswiftec(int.from_bytes(key[:32], "big"), int.from_bytes(key[32:], "big"))
    y = root(curve(x))
    assert y is not None
    return x, y


# ChaCha20-Poly1305 (RFC 8439) and HKDF-SHA256 (RFC 5869)


def chacha20(key: bytes, nonce: bytes, first: int) -> Iterator[bytes]:
    """The blocks of the key stream from this number on."""
    for number in count(first):
        words = [
            *(int.from_bytes(text, "little") for text in (b"expa", b"nd 3", b"2-by", b"te k")),
            *(int.from_bytes(key[at : at + 4], "little") for at in range(0, 32, 4)),
            number,
            *(int.from_bytes(nonce[at : at + 4], "little") for at in range(0, 12, 4)),
        ]
        now = list(words)
        for _ in range(10):
            for a, b, c, d in QUARTERS:
                for one, two, three, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                    now[one] = (now[one] + now[two]) & 0xFFFFFFFF
                    mixed = now[three] ^ now[one]
                    now[three] = (mixed << turn | mixed >> 32 - turn) & 0xFFFFFFFF
        yield b"".join((a + b & 0xFFFFFFFF).to_bytes(4, "little") for a, b in zip(words, now, strict=True))


QUARTERS = [(n, n + 4, n + 8, n + 12) for n in range(4)] + [
    (n, 4 + (n + 1) % 4, 8 + (n + 2) % 4, 12 + (n + 3) % 4) for n in range(4)
]


def poly1305(key: bytes, data: bytes) -> bytes:
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for at in range(0, len(data), 16):
        total = (total + int.from_bytes(data[at : at + 16] + b"\1", "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def xored(data: bytes, stream: Iterator[bytes]) -> bytes:
    key = b"".join(next(stream) for _ in range(0, len(data), 64))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(len(data), "big")


def tag(key: bytes, nonce: bytes, sealed: bytes, authenticated: bytes) -> bytes:
    parts = [part + bytes(-len(part) % 16) for part in (authenticated, sealed)]
    lengths = len(authenticated).to_bytes(8, "little") + len(sealed).to_bytes(8, "little")
    return poly1305(next(chacha20(key, nonce, 0))[:32], parts[0] + parts[1] + lengths)


def seal(key: bytes, nonce: bytes, plain: bytes, authenticated: bytes) -> bytes:
    sealed = xored(plain, chacha20(key, nonce, 1))
    return sealed + tag(key, nonce, sealed, authenticated)


class LengthCipher:
    """FSChaCha20 of the BIP: one key stream for 224 chunks, whose next 32 bytes are the next key."""

    def __init__(self, key: bytes) -> None:
        self.key, self.chunks, self.stream, self.block = key, 0, b"", 0

    def take(self, size: int) -> bytes:
        while len(self.stream) < size:
            nonce = bytes(4) + (self.chunks // REKEY).to_bytes(8, "little")
            self.stream += next(chacha20(self.key, nonce, self.block))
            self.block += 1
        found, self.stream = self.stream[:size], self.stream[size:]
        return found

    def crypt(self, chunk: bytes) -> bytes:
        found = bytes(a ^ b for a, b in zip(chunk, self.take(len(chunk)), strict=True))
        if (self.chunks + 1) % REKEY == 0:
            self.key, self.stream, self.block = self.take(32), b"", 0
        self.chunks += 1
        return found


class PacketCipher:
    """FSChaCha20Poly1305 of the BIP."""

    def __init__(self, key: bytes) -> None:
        self.key, self.packets = key, 0

    def nonce(self) -> bytes:
        return (self.packets % REKEY).to_bytes(4, "little") + (self.packets // REKEY).to_bytes(8, "little")

    def advance(self) -> None:
        if (self.packets + 1) % REKEY == 0:
            self.key = seal(self.key, b"\xff" * 4 + self.nonce()[4:], bytes(32), b"")[:32]
        self.packets += 1

    def encrypt(self, plain: bytes, authenticated: bytes) -> bytes:
        found = seal(self.key, self.nonce(), plain, authenticated)
        self.advance()
        return found

    def decrypt(self, sealed: bytes, authenticated: bytes) -> bytes:
        body, end = sealed[:-16], sealed[-16:]
        assert tag(self.key, self.nonce(), body, authenticated) == end, "wrong tag"
        found = xored(body, chacha20(self.key, self.nonce(), 1))
        self.advance()
        return found


class Twin:
    """One side of an encrypted connection. `out` has the bytes to send, `found` the contents that have arrived."""

    def __init__(self, magic: bytes, rng: random.Random, *, is_initiator: bool, garbage: bytes) -> None:
        self.is_initiator, self.magic, self.garbage = is_initiator, magic, garbage
        self.private = rng.randrange(1, ORDER)
        point = times(self.private, G)
        assert point is not None
        self.public = encoded(point[0], rng)
        self.out = bytearray(self.public + garbage)
        self.buffer = bytearray()
        self.found: list[bytes] = []
        self.versions: list[bytes] = []
        self.session_id = b""
        self.theirs: bytes | None = None  # garbage of the peer, once its terminator has arrived
        self.length: int | None = None

    def has_keys(self) -> bool:
        return self.session_id != b""

    def exchange(self, key: bytes, version: bytes, decoys: list[bytes]) -> None:
        """Derive the keys, and send the terminator, some decoys and the version packet."""
        shared = times(self.private, decoded(key))
        assert shared is not None
        pair = (self.public, key) if self.is_initiator else (key, self.public)
        label = hashlib.sha256(b"bip324_ellswift_xonly_ecdh").digest()
        secret = hashlib.sha256(label * 2 + b"".join(pair) + shared[0].to_bytes(32, "big")).digest()
        extracted = hmac.new(b"bitcoin_v2_shared_secret" + self.magic, secret, hashlib.sha256).digest()
        names = ("initiator_L", "initiator_P", "responder_L", "responder_P", "garbage_terminators", "session_id")
        keys = [hmac.new(extracted, name.encode() + b"\1", hashlib.sha256).digest() for name in names]
        ours, others = (keys[:2], keys[2:4]) if self.is_initiator else (keys[2:4], keys[:2])
        self.send_length, self.send_packet = LengthCipher(ours[0]), PacketCipher(ours[1])
        self.take_length, self.take_packet = LengthCipher(others[0]), PacketCipher(others[1])
        ends = keys[4][:16], keys[4][16:]
        mine, self.terminator = ends if self.is_initiator else ends[::-1]
        self.session_id = keys[5]
        self.out += mine
        authenticated = self.garbage
        for decoy in decoys:
            self.send(decoy, authenticated, is_decoy=True)
            authenticated = b""
        self.send(version, authenticated)

    def send(self, contents: bytes, authenticated: bytes = b"", *, is_decoy: bool = False) -> None:
        self.out += self.send_length.crypt(len(contents).to_bytes(3, "little"))
        self.out += self.send_packet.encrypt((b"\x80" if is_decoy else b"\0") + contents, authenticated)

    def feed(self, data: bytes, version: bytes = b"", decoys: list[bytes] | None = None) -> None:
        self.buffer += data
        if not self.has_keys():
            if len(self.buffer) < 64:
                return
            self.exchange(bytes(self.buffer[:64]), version, decoys or [])
            del self.buffer[:64]
        if self.theirs is None:
            end = self.buffer.find(self.terminator)
            assert end <= 4_095
            if end < 0:
                return
            self.theirs = bytes(self.buffer[:end])
            del self.buffer[: end + 16]
        while True:
            if self.length is None:
                if len(self.buffer) < 3:
                    return
                self.length = int.from_bytes(self.take_length.crypt(bytes(self.buffer[:3])), "little")
                del self.buffer[:3]
            size = 1 + self.length + 16
            if len(self.buffer) < size:
                return
            plain = self.take_packet.decrypt(bytes(self.buffer[:size]), self.theirs)
            del self.buffer[:size]
            self.length, self.theirs = None, b""
            if plain[0] & 0x80 == 0:
                (self.found if self.versions else self.versions).append(plain[1:])
