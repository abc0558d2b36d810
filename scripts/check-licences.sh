#!/bin/sh
# Every dependency must come under at least one licence of this list.
set -eu
cd "$(dirname "$0")/.."
cargo metadata --format-version 1 --locked | python3 -c '
import json, re, sys

ALLOWED = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "0BSD", "Unlicense",
           "CC0-1.0", "Unicode-3.0", "MIT-0", "BSL-1.0"}
# Used to test and never linked into anything that is shipped.
TOOLS = {"cbindgen"}


def allowed(expression):
    """An SPDX expression of AND, OR, WITH and parentheses ("/" is an old spelling of OR)."""
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    python = []
    skip = False
    for token in tokens:
        if skip:  # the name of an exception only widens a licence
            skip = False
        elif token in ("AND", "OR"):
            python.append(token.lower())
        elif token == "WITH":
            skip = True
        elif token in "()":
            python.append(token)
        else:
            python.append(str(token in ALLOWED))
    return eval(" ".join(python), {})


packages = json.load(sys.stdin)["packages"]
bad = [(p["name"], p["license"]) for p in packages if p["name"] not in TOOLS and not allowed(p["license"] or "none")]
for name, licence in bad:
    print(f"licences: {name} is under {licence!r}, which is not on the list", file=sys.stderr)
print(f"licences: {len(packages)} packages, {len(bad)} refused")
sys.exit(bool(bad))
'
