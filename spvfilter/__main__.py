"""`python -m spvfilter`: the command line."""

from __future__ import annotations

from spvfilter.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
