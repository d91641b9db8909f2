# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chart of a benchmark: valid SVG without active content, whatever the labels contain."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import jinja2
import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.chart import chart
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.median_and_outliers import BenchmarkValueError

TEMPLATE = Path(__file__).resolve().parents[5] / "playbooks/templates/benchmark.svg.j2"
SVG = "{http://www.w3.org/2000/svg}"
ROWS = [
    {"label": "CPU", "device": "cpu", "seconds": 2.0, "baseline": None},
    {"label": "GPU 0", "device": "gpu", "seconds": 0.002, "baseline": 2.0},
]


def drawn(rows, title="Matrix product"):
    text = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(TEMPLATE.read_text(encoding="utf-8"))
    return ElementTree.fromstring(text.render(chart=chart(title, rows)))


def bars(root):
    return [float(element.get("width")) for element in root.iter(SVG + "rect") if element.get("x")]


def test_the_chart_shows_seconds_and_the_speed_up():
    root = drawn(ROWS)
    assert root.tag == SVG + "svg"
    texts = [element.text for element in root.iter(SVG + "text")]
    assert texts == ["Matrix product", "CPU", "2 s", "GPU 0", "2 ms, 1,000 times"]
    cpu, gpu = bars(root)
    assert cpu > gpu > 0


def test_labels_cannot_add_elements():
    evil = '<script>alert(1)</script>" onload="x" & ]]>'
    root = drawn([{**ROWS[0], "label": evil}], title=evil)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {"svg", "title", "rect", "text"}
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on") or "href" in name]
    assert evil in [element.text for element in root.iter(SVG + "text")]


@pytest.mark.parametrize("rows", [[], ROWS[:1], [{**ROWS[0], "seconds": 1.0}], [{**ROWS[0], "seconds": 1e-9}]])
def test_few_or_extreme_rows_have_bars_inside_the_chart(rows):
    root = drawn(rows)
    assert len(bars(root)) == len(rows)
    assert all(0 < width < 960 for width in bars(root))


@pytest.mark.parametrize("wrong", [{"device": "tpu"}, {"seconds": 0.0, "baseline": 1.0}, {"seconds": 0.0}])
def test_rows_that_are_not_valid_are_refused(wrong):
    with pytest.raises(BenchmarkValueError):
        drawn([{**ROWS[0], **wrong}])
