"""Make the documentation's pictures by running the program: docs/screenshots.py FOLDER writes watch.png, scan.png,
electrum.png and size.png.

Rich draws the output of a terminal of 112 columns as SVG, and Chromium converts it to PNG (Debian: chromium; or set
CHROMIUM). The chain is the one of `spvfilter demo`, the same on every run.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import pty
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from spvfilter.address import address_to_script
from spvfilter.cli.demo.chain import NETWORK, DemoChain, wallet_addresses
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.testing import RegtestNode

COLUMNS, ROWS = 112, 40
COLOR = re.compile(r"\x1b\[[\d;]*m")
PIECE = re.compile(r"(\r|\n|\x1b\[[\d;?]*[A-Za-z])")


def on_terminal(folder: Path, *words: str) -> str:
    """The screen after a run of the program in a terminal, without its messages on standard error."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    settings = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    with subprocess.Popen(
        [sys.executable, "-m", "spvfilter", *words],
        stdout=theirs,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=settings,
    ) as child:
        os.close(theirs)
        received = b""
        try:
            while data := os.read(ours, 65536):
                received += data
        except OSError:  # EIO: the other side was closed
            pass
        os.close(ours)
        errors = child.stderr.read().decode() if child.stderr is not None else ""
    if child.returncode:
        sys.exit(f"{' '.join(words)}: {errors}")
    return screen(received.decode().replace("\r\n", "\n"))


def screen(written: str) -> str:
    """The screen after this output: a progress display moves the cursor back, erases lines and writes them again."""
    lines, at = [""], 0
    for piece in PIECE.split(written):
        if piece == "\n":
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif piece == "\r":
            continue  # an escape sequence that erases the line follows
        elif piece == "\x1b[2K":
            lines[at] = "".join(COLOR.findall(lines[at]))  # erasing text leaves the color as it is
        elif up := re.fullmatch(r"\x1b\[(\d*)A", piece):
            at -= int(up[1] or 1)
        elif not piece.startswith("\x1b[") or piece.endswith("m"):
            # text and colors; the other sequences show and hide the cursor
            lines[at] += piece
    return "\n".join(lines)


def draw(shown: str, title: str, path: Path) -> None:
    """Draw a screen as a PNG file."""
    text = Text.from_ansi(f"$ {title}\n{shown.rstrip()}")
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(text, soft_wrap=True)
    # the font would be loaded from another host
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="", theme=MONOKAI), flags=re.DOTALL)
    svg = svg.replace("Fira Code", "DejaVu Sans Mono")
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert size is not None
    wide, high = (round(float(each)) for each in size.groups())
    browser = (
        os.environ.get("CHROMIUM")
        or shutil.which("chromium")
        or sys.exit("no Chromium here: apt install chromium, or set CHROMIUM")
    )
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(
            f"<!doctype html><style>body{{margin:0}}svg{{display:block;width:{wide}px}}</style>{svg}", encoding="utf-8"
        )
        words = [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--window-size={wide},{high}",
        ]
        subprocess.run(
            [*words, f"--screenshot={path.resolve()}", page.as_uri()], check=True, capture_output=True, timeout=120
        )
    shrink(path)


def shrink(path: Path) -> None:
    """Reduce a picture to 64 colors: a fifth of the size, without a visible difference."""
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(64, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


def electrum(folder: Path, chain: DemoChain) -> tuple[str, str]:
    """The output of an Electrum server with one session and of its status, and the command that starts it."""
    node = RegtestNode(0)
    for block in chain.blocks:
        node.call(lambda regtest, raw=block: regtest.submit_block(raw))
    words = ("electrum", "--watch", "wallet.txt", "--db", "wallet.db", "--network", "regtest", "--connect")
    server = [sys.executable, "-m", "spvfilter", *words, node.address, "--port", "0"]
    with subprocess.Popen(server, stdout=subprocess.PIPE, cwd=folder, text=True) as child:
        assert child.stdout is not None
        listening, found = child.stdout.readline(), child.stdout.readline()
        port = listening.split()[5]
        with socket.create_connection(("127.0.0.1", int(port))) as session:
            reader = session.makefile("rb")
            for script_hash in [hash_of(each) for each in wallet_addresses().values()] + ["ab" * 32]:
                request = {"id": 1, "method": "blockchain.scripthash.subscribe", "params": [script_hash]}
                session.sendall(json.dumps(request).encode() + b"\n")
                reader.readline()
            shown = on_terminal(folder, "electrum", "status", "--port", port)
        child.terminate()
    node.close()
    said = f"{listening.replace(port, '50001')}{found}\n$ spvfilter electrum status\n{shown}"
    return said, " ".join(("spvfilter", *words, "127.0.0.1"))


def hash_of(address: str) -> str:
    return hashlib.sha256(address_to_script(address, NETWORK)).digest()[::-1].hex()


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chain = DemoChain(COINBASE_MATURITY)
        (folder / "wallet.txt").write_text(
            "".join(f"{address},{kind}\n" for kind, address in wallet_addresses().items()), encoding="utf-8"
        )
        (folder / "blk00000.dat").write_bytes(
            b"".join(NETWORK.magic + len(block).to_bytes(4, "little") + block for block in chain.blocks)
        )
        scan = ("scan", "blk00000.dat", "--watch", "wallet.txt", "--network", "regtest")
        draw(on_terminal(folder, *scan), " ".join(("spvfilter", *scan)), target / "scan.png")

        node = RegtestNode(0)
        try:
            for block in chain.blocks:
                node.call(lambda regtest, raw=block: regtest.submit_block(raw))
            watch = ("watch", "--watch", "wallet.txt", "--network", "regtest", "--once", "--connect")
            shown = on_terminal(folder, *watch, node.address)
        finally:
            node.close()
        draw(shown, " ".join(("spvfilter", *watch, "127.0.0.1")), target / "watch.png")
        draw(*electrum(folder, chain), target / "electrum.png")
        on_terminal(folder, "bloom", "size", "--capacity", "100000", "--fp-rate", "0.001", "--plot", "size.png")
        shutil.copyfile(folder / "size.png", target / "size.png")
        shrink(target / "size.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
