"""All figures of the speed of this package, each beside its peers, in one go.

    python benchmarks/run.py [--quick]

Some 20 minutes on a machine with nothing else to do; ``--quick`` shows in two that it works.
What sites that never answer do to a crawl is measured by ``stall.py``.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# Each with its arguments for a quick run. Each in a process of its own: what one leaves in memory
# is not the next one's.
PARTS = {
    "matching.py": ["--rounds", "1"],
    "footprint.py": ["--rounds", "1"],
    "pages.py": ["--rounds", "1"],
    "engine.py": ["--rounds", "1", "--pages", "2000"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="small: only to see it work"
    )
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}\n", flush=True)
    status = 0
    for name, quick in PARTS.items():
        arguments = quick if options.quick else []
        command = [sys.executable, str(HERE / name), *arguments]
        status |= subprocess.run(command, check=False).returncode
        print(flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
