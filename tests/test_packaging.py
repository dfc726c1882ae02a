"""What is installed is what setup.cfg says, it is typed, and importing it costs nothing."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import scrapy_rep

pytestmark = pytest.mark.scrapy_api

PACKAGE = Path(scrapy_rep.__file__).parent
ROOT = PACKAGE.parent


@pytest.fixture
def setup_cfg() -> configparser.ConfigParser:
    """The file of a clone; an installation elsewhere has none."""
    path = ROOT / "setup.cfg"
    if not path.exists():
        pytest.skip("not in a clone of the repository")
    config = configparser.ConfigParser()
    config.read(path, encoding="utf-8")
    return config


def stripped_lines(value: str) -> list[str]:
    return [line.strip() for line in value.strip().splitlines()]


def test_setup_cfg_names_what_is_required(setup_cfg: configparser.ConfigParser) -> None:
    about, options = setup_cfg["metadata"], setup_cfg["options"]
    assert about["name"] == "scrapy-rep"
    assert about["version"] == "attr: scrapy_rep.__version__"
    assert about["license"] == "BSD-3-Clause"
    assert options["python_requires"] == ">=3.10"
    assert stripped_lines(options["install_requires"]) == ["scrapy>=2.15"]
    assert {*setup_cfg["options.extras_require"]} >= {"redis", "test"}
    # setuptools takes the dashes of old for an error.
    assert not [key for part in setup_cfg.values() for key in part if "-" in key]


def test_the_installed_metadata_is_that_of_setup_cfg(setup_cfg: configparser.ConfigParser) -> None:
    try:
        installed = metadata.distribution("scrapy-rep")
    except metadata.PackageNotFoundError:
        pytest.skip("not installed, but imported from a folder")
    assert installed.version == scrapy_rep.__version__
    assert installed.metadata["Requires-Python"] == ">=3.10"
    requires = installed.requires or []
    assert [one for one in requires if "extra ==" not in one] == ["scrapy>=2.15"]
    commands = stripped_lines(setup_cfg["options.entry_points"]["scrapy.commands"])
    assert [f"{one.name} = {one.value}" for one in installed.entry_points] == commands
    extras = installed.metadata.get_all("Provides-Extra")
    assert {*(extras or [])} == {*setup_cfg["options.extras_require"]}


def test_pyproject_toml_names_only_the_build_backend() -> None:
    """setup.cfg alone does not install with today's pip; all else stands there."""
    path = ROOT / "pyproject.toml"
    if not path.exists():
        pytest.skip("not in a clone of the repository")
    content = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert content[0] == "[build-system]"
    assert {line.partition("=")[0].strip() for line in content[1:]} == {"requires", "build-backend"}


def test_the_license_is_in_the_clone() -> None:
    path = ROOT / "LICENSE"
    if not path.exists():
        pytest.skip("not in a clone of the repository")
    text = path.read_text(encoding="utf-8")
    assert "Redistribution and use in source and binary forms" in text
    assert "Neither the name" in text  # the third clause


def test_the_package_is_marked_as_typed(setup_cfg: configparser.ConfigParser) -> None:
    assert (PACKAGE / "py.typed").exists()
    assert "py.typed" in stripped_lines(setup_cfg["options.package_data"]["scrapy_rep"])


def test_every_file_is_installed(setup_cfg: configparser.ConfigParser) -> None:
    """What is no module has to be named."""
    named = {
        file
        for package, patterns in setup_cfg["options.package_data"].items()
        for pattern in patterns.split(",")
        for file in ROOT.joinpath(*package.split(".")).glob(pattern.strip())
    }
    files = {
        path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in str(path)
    }
    assert {path for path in files if path.suffix != ".py"} == named


def test_every_folder_is_a_package() -> None:
    """`packages = find:` overlooks the others."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert {folder for folder in folders if not (folder / "__init__.py").exists()} == set()


def python(code: str) -> str:
    """What a fresh interpreter prints; it may not warn."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


LOADED = """
roots = {name.partition(".")[0] for name in sys.modules}
print(*sorted(roots & {"scrapy", "twisted", "w3lib", "redis"}))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    "imports",
    [
        "import scrapy_rep",
        "import scrapy_rep; scrapy_rep.__version__",
        "import scrapy_rep.signals",
        "import scrapy_rep.protocol",
        "from scrapy_rep.protocol import RobotsTxt, Decision, Rule, Origin",
    ],
)
def test_an_import_loads_neither_scrapy_nor_redis(imports: str) -> None:
    """The core works without Scrapy; commands that crawl nothing load nothing of ours."""
    assert python(f"import sys\n{imports}\n{LOADED}") == ""


@pytest.mark.process
def test_import_installs_no_reactor() -> None:
    """Scrapy does that when it knows which."""
    code = (
        "import warnings\n"
        "warnings.simplefilter('ignore')\n"  # of Twisted 21.7 on Python 3.11
        "import sys\n"
        "from scrapy_rep import *\n"
        "print('twisted.internet.reactor' in sys.modules)"
    )
    assert python(code) == "False"


def test_every_public_name_can_be_imported() -> None:
    for name in scrapy_rep.__all__:
        assert getattr(scrapy_rep, name).__name__ == name
    assert {"Addon", "RepMiddleware", "RobotParser", "may_fetch"} <= {*scrapy_rep.__all__}
    with pytest.raises(AttributeError, match="'scrapy_rep' has no attribute 'Nonsense'"):
        scrapy_rep.Nonsense  # noqa: B018


def test_sections_that_the_code_names_are_in_the_specification() -> None:
    specification = Path(__file__).parents[1].joinpath("docs", "REP.md").read_text("utf-8")
    there = set(re.findall(r"^## (\d+)\.", specification, re.MULTILINE))
    named: dict[str, str] = {}
    for path in PACKAGE.rglob("*.py"):
        for numbers in re.findall(
            r"REP\.md,?\s+sections?\s+([\d,\sand]*\d)", path.read_text("utf-8")
        ):
            named |= dict.fromkeys(re.findall(r"\d+", numbers), path.name)
    assert len(named) > 5
    assert {number: name for number, name in named.items() if number not in there} == {}
