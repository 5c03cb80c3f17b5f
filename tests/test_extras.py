"""`make test` installs no torch: what needs it is skipped, and nothing else goes wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.long
def test_tests_can_be_collected_without_torch():
    lines = (
        "import sys, pytest; sys.modules['torch'] = None; "
        "sys.exit(pytest.main(['--collect-only', '-q', '-p', 'no:xdist', '-p', 'no:cacheprovider']))"
    )
    ran = subprocess.run([sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert "needs torch" in ran.stdout
