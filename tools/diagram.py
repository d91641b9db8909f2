# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw docs/site.svg, the steps of playbook site, from docs/site.txt."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT, GAP, MARGIN = 560, 46, 16, 8
# The background is part of the picture, so that it is readable on dark pages, too.
_STYLE = (
    "text{font-family:sans-serif;fill:#1b1f24}.title{font-size:15px;font-weight:bold}.text{font-size:13px}"
    ".box{fill:#eef5ea;stroke:#4a7c2c}.line{stroke:#57606a;stroke-width:2;marker-end:url(#end)}"
)


def steps(text: str) -> list[tuple[str, str]]:
    """Return the titles and explanations. Lines that begin with # are comments."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(title.strip(), rest.strip()) for title, _bar, rest in (line.partition("|") for line in lines)]


def drawing(found: list[tuple[str, str]]) -> str:
    """Return the picture: one box for each step, from top to bottom."""
    total = 2 * MARGIN + len(found) * HEIGHT + (len(found) - 1) * GAP
    title = escape(f"The steps of playbook site: {', '.join(name for name, _rest in found)}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{total}" viewBox="0 0 {WIDTH} {total}" '
        'role="img">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="end" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="5" markerHeight="5" orient="auto">'
        '<path d="M0 0 6 3 0 6z" fill="#57606a"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{total}" fill="#ffffff"/>',
    ]
    for number, (name, rest) in enumerate(found):
        top = MARGIN + number * (HEIGHT + GAP)
        if number:
            middle = WIDTH // 2
            lines.append(f'<line class="line" x1="{middle}" y1="{top - GAP}" x2="{middle}" y2="{top}"/>')
        lines += [
            f'<rect class="box" x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" height="{HEIGHT}" rx="6"/>',
            f'<text class="title" x="{MARGIN + 14}" y="{top + 19}">{escape(name)}</text>',
            f'<text class="text" x="{MARGIN + 14}" y="{top + 37}">{escape(rest)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def main(arguments: list[str] | None = None) -> int:
    """Write or check the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if the picture is out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help="the collection that contains the picture")
    options = parser.parse_args(arguments)
    path = options.root / "docs/site.svg"
    text = drawing(steps((options.root / "docs/site.txt").read_text(encoding="utf-8")))
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return 0
    if options.check:
        print("docs/site.svg: The picture is out of date. Run `make docs`.", file=sys.stderr)
        return 1
    path.write_text(text, encoding="utf-8")
    print("docs/site.svg: updated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
