"""Secrets among the files that git keeps: keys of clouds and services, private keys, tokens; each hit is named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_MOST_BYTES = 2_000_000
_KINDS = {
    "a private key": re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s+[A-Za-z0-9+/]{40}"),
    "a key of AWS": re.compile(rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a token of GitHub": re.compile(rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,})\b"),
    "a token of Slack": re.compile(rb"\bxox[abprs]-[A-Za-z0-9-]{20,}"),
    "a key of Google": re.compile(rb"\bAIza[0-9A-Za-z_-]{35}\b"),
    "a key of Stripe": re.compile(rb"\b[rs]k_live_[0-9A-Za-z]{20,}\b"),
    "a token of PyPI": re.compile(rb"\bpypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{40,}"),
    "a JSON web token": re.compile(rb"\beyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
    "a key of Headrace": re.compile(rb"\bhr_[0-9a-f]{8}_[A-Za-z0-9_-]{43}\b"),
    "a password in an address": re.compile(
        rb"\b[a-z][a-z0-9+]{2,15}://[A-Za-z0-9_.-]+:(?![<$%{*])[^\s:/@'\"`}\\]{12,}@"
    ),
}
# A line that ends so says why what stands in it is none.
_NO_SECRET = re.compile(rb"no secret: \S+")


def found_in(content: bytes) -> list[tuple[int, str]]:
    """The lines of a file in which something looks like a secret, and what it looks like."""
    hits: list[tuple[int, str]] = []
    for kind, pattern in _KINDS.items():
        for match in pattern.finditer(content):
            begin = content.rfind(b"\n", 0, match.start()) + 1
            end = content.find(b"\n", match.end())
            if not _NO_SECRET.search(content[begin : end if end >= 0 else len(content)]):
                hits.append((content.count(b"\n", 0, match.start()) + 1, kind))
    return sorted(hits)


def main() -> int:
    """Look through all files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True, check=True).stdout
    names = [name for name in listed.decode().split("\0") if name and (_ROOT / name).is_file()]
    count = 0
    for name in names:
        path = _ROOT / name
        if path.stat().st_size > _MOST_BYTES:
            continue
        for line, kind in found_in(path.read_bytes()):
            # What it is stays unsaid: the output of a check is kept in places of its own.
            print(f"{name}:{line}: looks like {kind}")
            count += 1
    print(f"{len(names)} files, {count} that look like a secret")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
