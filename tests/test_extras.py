"""`make test` installs no torch: what needs it is skipped, and nothing else goes wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


WITHOUT_TORCH = """
import sys
import pytest

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]))
"""


@pytest.mark.long
def test_tests_can_be_collected_without_torch():
    line = [sys.executable, "-c", WITHOUT_TORCH]
    ran = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert "needs torch" in ran.stdout
