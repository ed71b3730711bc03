"""The Python of docs/python.md runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_the_page(tmp_path: Path) -> None:
    programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    printed = re.findall(r"^```\n\$ python app\.py\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    assert len(programs) == len(printed) == 1
    (tmp_path / "app.py").write_text(programs[0])
    got = "".join(subprocess.run([sys.executable, "-W", "error", "app.py"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout for _ in range(2))
    assert got == printed[0].replace("$ python app.py\n", "")
