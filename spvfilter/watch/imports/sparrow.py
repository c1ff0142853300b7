"""Descriptors that Sparrow exports as text: receiving and change combined (BIP-389), then each on its own.

```
# Receive and change descriptor (BIP389):
wpkh([…]xpub…/<0;1>/*)#…

# Receive descriptor (Bitcoin Core):
…
```
"""

from __future__ import annotations

from spvfilter.errors import ParameterError
from spvfilter.watch.descriptor.keys import private_key_in
from spvfilter.watch.imports.walletfile import ImportedDescriptor, WalletFile, networks_of_text

_HEADING = "# Receive and change descriptor"


def read_sparrow(text: str) -> WalletFile | None:
    """Return the wallet in Sparrow's text, or None if the text has a different format.

    Raises ParameterError if the descriptor is missing or contains a private key.
    """
    if not text.startswith(_HEADING):
        return None
    found = next((line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")), None)
    if found is None:
        raise ParameterError("this Sparrow file has no descriptor after its first line: export it again")
    if (what := private_key_in(found)) is not None:
        raise ParameterError(f"the descriptor contains {what}, which was not kept: export a watch-only wallet")
    return WalletFile("Sparrow", networks=networks_of_text(found), descriptors=(ImportedDescriptor(found),))
