# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.tests.pages import run as pages_run

PAGE = """# A page

## First

```yaml
# play.yml
- hosts: all
```

```yaml
- only: an example
```

```sh
# a comment
one --option \\
  value
two
```

## Second

Text without a command.
"""


def test_the_files_of_a_section_are_written_before_its_commands_run() -> None:
    assert [*pages_run.steps(PAGE, ["First"])] == [
        ("file play.yml", "# play.yml\n- hosts: all\n"),
        ("run", "one --option value"),
        ("run", "two"),
    ]


@pytest.mark.parametrize(
    ("heading", "message"), [("Third", "no section 'Third'"), ("Second", "Section 'Second' has no command")]
)
def test_a_page_that_has_changed_is_an_error(heading: str, message: str) -> None:
    with pytest.raises(pages_run.PageError, match=message):
        list(pages_run.steps(PAGE, [heading]))
