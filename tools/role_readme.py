# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the table of variables in each role's README.md from its argument specification and defaults.

role_readme.py [--check] [--root DIRECTORY]
"""

from __future__ import annotations

import argparse
import html
import json
import re
import sys
from pathlib import Path

import yaml
from antsibull_docs_parser import dom
from antsibull_docs_parser.parser import Context, parse

BEGIN = "<!-- variables: begin -->"
END = "<!-- variables: end -->"
NOTE = "<!-- `make docs` writes this table from meta/argument_specs.yml and defaults/main.yml. -->"
COLUMNS = ("Variable", "Type", "Default", "Choices", "Description")

CODE_PARTS = {
    dom.PartType.CODE: "text",
    dom.PartType.ENV_VARIABLE: "name",
    dom.PartType.MODULE: "fqcn",
    dom.PartType.OPTION_VALUE: "value",
}


def code(value: object) -> str:
    """Render a value as a code span that is valid in a table cell."""
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    if "|" in text:
        # GitHub and Galaxy render `\|` differently in a code span of a table.
        return "<code>" + html.escape(text, quote=False).replace("|", "&#124;") + "</code>"
    return f"`{text}`"


def plain(text: str) -> str:
    """Escape characters that have a meaning in Markdown or in a table."""
    unknown = re.search(r"\b[A-Z]\(.*?\)", text)
    if unknown:
        raise ValueError(f"Ansible knows no markup like {unknown[0]}.")
    text = re.sub(r"([\\`*\[\]|])", r"\\\1", text).replace("<", "&lt;")
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)


def render_part(part: dom.AnyPart) -> str:
    """Render one piece of Ansible markup."""
    kind = part.type
    if kind in CODE_PARTS:
        return code(getattr(part, CODE_PARTS[kind]))
    if kind in (dom.PartType.OPTION_NAME, dom.PartType.RETURN_VALUE):
        return code(part.name if part.value is None else f"{part.name}: {part.value}")
    if kind == dom.PartType.PLUGIN:
        return code(part.plugin.fqcn)
    if kind == dom.PartType.URL:
        return f"<{part.url}>"
    if kind == dom.PartType.LINK:
        return f"[{plain(part.text)}]({part.url})"
    if kind == dom.PartType.ITALIC:
        return f"*{plain(part.text)}*"
    if kind == dom.PartType.BOLD:
        return f"**{plain(part.text)}**"
    if kind == dom.PartType.HORIZONTAL_LINE:
        return ""
    return plain(part.text)


def render(paragraphs: str | list[str]) -> str:
    """Render a description as the content of one cell."""
    if isinstance(paragraphs, str):
        paragraphs = [paragraphs]
    parsed = parse(paragraphs, Context(), errors="exception")
    return "<br>".join("".join(render_part(part) for part in parts).strip() for parts in parsed)


def rows(options: dict, defaults: dict, prefix: str = "") -> list[tuple[str, ...]]:
    """Return one row per variable, followed by the rows of its keys."""
    found = []
    for name, option in options.items():
        kind = option.get("type", "str")
        if "elements" in option:
            kind = f"{kind} of {option['elements']}"
        default = defaults[name] if name in defaults else option.get("default")
        if option.get("required"):
            shown = "required"
        elif default is None:
            shown = ""
        else:
            shown = code(default)
        choices = ", ".join(code(value) for value in option.get("choices", []))
        found.append((code(prefix + name), kind, shown, choices, render(option.get("description", []))))
        found += rows(option.get("options", {}), {}, f"{prefix}{name}.")
    return found


def table(specification: dict, defaults: dict) -> str:
    """Render the variables of every entry point."""
    lines = []
    for entry_point, content in specification["argument_specs"].items():
        if entry_point != "main":
            lines += ["", f"Entry point {code(entry_point)}:"]
        cells = [COLUMNS, ("---",) * len(COLUMNS), *rows(content.get("options", {}), defaults)]
        lines += ["", *("| " + " | ".join(row) + " |" for row in cells)]
    return "\n".join(lines)


def load(path: Path) -> dict:
    """Read a YAML file of a role."""
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.exists() else {}


def updated(role: Path) -> str:
    """Return the role's README.md with the current table. Raise ValueError if the file or its markers are missing."""
    if not (role / "README.md").exists():
        raise ValueError("The file is missing, and Galaxy rejects a role without it. Copy another role's README.md.")
    text = (role / "README.md").read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"The table's place is not marked. Add a line '{BEGIN}' and after it a line '{END}'.")
    specification = load(role / "meta/argument_specs.yml")
    defaults = load(role / "defaults/main.yml")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{NOTE}\n{table(specification, defaults)}\n\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the README.md of every role."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a table is out of date")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the collection")
    options = parser.parse_args(arguments)
    status = 0
    for role in sorted(path.parents[1] for path in options.root.glob("roles/*/meta/argument_specs.yml")):
        readme = role / "README.md"
        place = readme.relative_to(options.root)
        try:
            text = updated(role)
        except ValueError as error:
            print(f"{place}: {error}", file=sys.stderr)
            status = 1
            continue
        if text == readme.read_text(encoding="utf-8"):
            continue
        if options.check:
            print(f"{place}: The table of variables is out of date. Run `make docs`.", file=sys.stderr)
            status = 1
        else:
            readme.write_text(text, encoding="utf-8")
            print(f"{place}: updated")
    return status


if __name__ == "__main__":
    sys.exit(main())
