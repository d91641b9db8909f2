# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Format results: lines for the terminal, a page for docs/acceptance, and JSON. Functions have no side effects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from acceptance.checks import Result

WIDTH = 46


def line(result: Result) -> str:
    """Return the terminal line of a check, followed by its problems."""
    mark = "skip" if result.skipped else "pass" if result.passed else "FAIL"
    text = f"{mark}  {result.check:<{WIDTH}}  {result.seconds:5.1f} s  {result.evidence}"
    more = [*(f"- {problem}" for problem in result.problems), *(f"  {note}" for note in result.notes)]
    return "\n".join([text, *(f"        {words}" for words in more)])


def summary(results: Sequence[Result]) -> str:
    bad = [result for result in results if not result.passed]
    if not results:
        return "nothing was checked"
    if bad:
        return f"{len(bad)} of {len(results)} checks FAILED: {', '.join(result.check for result in bad)}"
    skipped = len([result for result in results if result.skipped])
    return f"all {len(results) - skipped} checks passed{f', {skipped} not run' if skipped else ''}"


def slug(text: str) -> str:
    """Convert a product name to a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower().replace("nvidia", "")).strip("-") or "gpu"


def stem(about: Mapping[str, Any]) -> str:
    return f"{about['date']}-{about['count']}x{slug(about['gpu'])}"


def document(about: Mapping[str, Any], results: Sequence[Result], timings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all results as a JSON document."""
    return {
        **about,
        "passed": bool(results) and all(result.passed for result in results),
        "checks": [{**result._asdict(), "problems": list(result.problems)} for result in results],
        "timings": dict(timings),
    }


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def page(about: Mapping[str, Any], results: Sequence[Result], timings: Mapping[str, Any]) -> str:
    """Return the page for docs/acceptance."""
    lines = [
        f"# Acceptance on {about['count']} x {about['gpu']}, {about['date']}",
        "",
        f"{summary(results)[0].upper()}{summary(results)[1:]}.",
        "",
        "| | |",
        "|---|---|",
    ]
    for title, key in (
        ("Commit", "commit"),
        ("GPUs", "gpus"),
        ("Driver", "driver"),
        ("CUDA", "cuda"),
        ("Container engine", "engine"),
        ("Host", "host"),
        ("Ansible", "ansible"),
        ("NVIDIA's container toolkit", "toolkit"),
        ("Duration", "duration"),
    ):
        lines.append(f"| {title} | {_cell(str(about[key]))} |")
    lines += ["", "## Checks", "", "| check | result | evidence | seconds |", "|---|---|---|---|"]
    for result in results:
        shown = "; ".join((result.evidence, *result.problems)) if not result.passed else result.evidence
        mark = "not run" if result.skipped else "pass" if result.passed else "**fail**"
        lines.append(f"| {_cell(result.check)} | {mark} | {_cell(shown)} | {result.seconds:.1f} |")
    for result in results:
        if result.notes:
            lines += ["", f"## Known differences: {result.check}", "", *(f"- {note}" for note in result.notes)]
    for title, key in (("Time of nvidia_gpu_facts", "facts"), ("Container start", "container_start")):
        if key in timings:
            lines += ["", f"## {title}", "", timings[key]["what"], "", "| program | median |", "|---|---|"]
            lines += [f"| {_cell(name)} | {value * 1000:.0f} ms |" for name, value in timings[key]["seconds"].items()]
            lines += ["", _ratio(key, timings[key])]
    lines += [
        "",
        f"Created by `make gpu-acceptance`. All results as JSON: [{stem(about)}.json]({stem(about)}.json).",
        "",
    ]
    return "\n".join(lines)


def _ratio(key: str, timing: Mapping[str, Any]) -> str:
    if key == "facts":
        return f"Time of the facts divided by the time of nvidia-smi: **{timing['ratio']}**."
    return (
        "; ".join(f"{name}, divided by the time without a GPU: **{ratio}**" for name, ratio in timing["ratio"].items())
        + "."
    )
