"""File systems that may be full or read-only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


class Disk:
    """A file system of its own, in memory."""

    def __init__(self, folder: Path, size: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.filler = folder / "filler"
        self._mount("-t", "tmpfs", "-o", f"size={size}", "scrapy-rep-tests", str(folder))

    def _mount(self, *arguments: str) -> None:
        try:
            subprocess.run(["mount", *arguments], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("may not mount file systems: needs root")

    def read_only(self, on: bool = True) -> None:
        self._mount("-o", f"remount,{'ro' if on else 'rw'}", str(self.folder))

    def fill(self) -> None:
        """To its last byte."""
        file = os.open(self.filler, os.O_WRONLY | os.O_CREAT)
        try:
            while True:
                os.write(file, b"\0" * 512)
        except OSError:
            pass
        finally:
            os.close(file)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)
