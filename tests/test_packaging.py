"""What is installed is what setup.cfg says, it is typed, and importing it costs nothing."""

from __future__ import annotations

import ast
import configparser
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import scrapy_rep
import scrapy_rep.signals
import scrapy_rep.storages
from scrapy_rep.reporting.report import MANUAL

PACKAGE = Path(scrapy_rep.__file__).parent
ROOT = PACKAGE.parent


@pytest.fixture
def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    if not config.read(ROOT / "setup.cfg", encoding="utf-8"):
        pytest.skip("not in a clone of the repository")
    return config


LINK = re.compile(r"!?\[[^\]]*\]\(([^)]+)\)|(?:href|src)=\"?([^\"> ]+)")


def test_the_long_description_leads_nowhere_but_to_addresses(
    setup_cfg: configparser.ConfigParser,
) -> None:
    """An index page has neither our files nor our pictures."""
    about = setup_cfg["metadata"]
    assert about["long_description_content_type"] == "text/markdown"
    text = (ROOT / about["long_description"].removeprefix("file: ")).read_text("utf-8")
    assert "scrapy_rep.Addon" in text
    assert LINK.findall("[a](b/c.md) ![d](e.png)") == [("b/c.md", ""), ("e.png", "")]
    assert [
        link for link in map("".join, LINK.findall(text)) if link[:8] != "https://"
    ] == []
    # It agrees with README.md about what it is, how it is switched on, and what it runs on.
    readme = re.sub(r"\s+|\*\*", " ", (ROOT / "README.md").read_text("utf-8"))
    assert re.sub(r"\s+", "", text.split("\n\n")[1]) in readme.replace(" ", "")
    rows = [
        line
        for line in text.splitlines()
        if line.startswith(("USER_AGENT", "ADDONS", "| "))
    ]
    assert len(rows) > 6
    assert [row for row in rows if re.sub(r"\s+", " ", row) not in readme] == []


def test_the_installed_metadata_is_that_of_setup_cfg(
    setup_cfg: configparser.ConfigParser,
) -> None:
    try:
        installed = metadata.distribution("scrapy-rep")
    except metadata.PackageNotFoundError:
        pytest.skip("not installed, but imported from a folder")
    assert installed.version == scrapy_rep.__version__
    assert installed.metadata["Requires-Python"] == ">=3.10"
    requires = installed.requires or []
    assert [one for one in requires if "extra ==" not in one] == ["scrapy>=2.15"]
    entry_points = setup_cfg["options.entry_points"]
    assert {*entry_points} == {"scrapy.commands", "console_scripts"}
    commands = [
        line for lines in entry_points.values() for line in lines.strip().splitlines()
    ]
    assert sorted(
        f"{one.name} = {one.value}" for one in installed.entry_points
    ) == sorted(commands)
    extras = installed.metadata.get_all("Provides-Extra")
    assert {*(extras or [])} == {*setup_cfg["options.extras_require"]}


def test_a_clone_has_the_license_and_only_in_pyproject_what_must_be_there(
    setup_cfg: configparser.ConfigParser,
) -> None:
    """setup.cfg alone does not install with today's pip, and has no place for what only tests and the
    manual need, which is not published; all else stands there."""
    # setuptools takes the dashes of old for an error.
    assert not [key for part in setup_cfg.values() for key in part if "-" in key]
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 can't read TOML")
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {name: [*table] for name, table in tables.items()} == {
        "build-system": ["requires", "build-backend"],
        "dependency-groups": ["test", "docs"],
    }
    assert {*setup_cfg["options.extras_require"]} == {"redis", "report", "usage"}
    tox = config_of("tox.ini")
    used = {tox[name].get("dependency_groups", "") for name in tox.sections()}
    assert used - {""} == {*tables["dependency-groups"]}
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Redistribution and use in source and binary forms" in text
    assert "Neither the name" in text  # the third clause


def config_of(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    found.read(ROOT / name, encoding="utf-8")
    return found


def test_all_files_agree_about_version_and_addresses(
    setup_cfg: configparser.ConfigParser,
) -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {scrapy_rep.__version__}\n" in citation
    home, mail = setup_cfg["metadata"]["url"], setup_cfg["metadata"]["author_email"]
    assert f"\nrepository-code: {home}\n" in citation
    assert MANUAL.startswith(f"{home}/blob/main/docs/")
    path, _, heading = MANUAL.removeprefix(f"{home}/blob/main/").partition("#")
    assert f"## {heading}\n" in (ROOT / path).read_text("utf-8").lower()
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert f"mailto:{mail}" in (ROOT / name).read_text("utf-8")
    urls = re.findall(r"= (https://\S+)", setup_cfg["metadata"]["project_urls"])
    assert len(urls) == 5
    assert all(
        url.startswith((home, "https://scrapy-rep.readthedocs.io/")) for url in urls
    )


def built(folder: Path) -> tuple[set[str], set[str]]:
    pytest.importorskip("build", reason="needs build, from PyPI")
    if int(metadata.version("setuptools").partition(".")[0]) < 77:
        pytest.skip("pyproject.toml asks for setuptools 77")
    source = shutil.copytree(ROOT, folder / "clone", ignore=not_in_git)
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        folder,
        source,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == f"scrapy_rep-{scrapy_rep.__version__}-py3-none-any.whl"
    with tarfile.open(archive) as tar, zipfile.ZipFile(wheel) as unzipped:
        names = {one.name.partition("/")[2] for one in tar if one.isfile()}
        return names, {*unzipped.namelist()}


KEPT = {".ci", ".github", ".gitignore", ".pre-commit-config.yaml", ".readthedocs.yaml"}
LEFT_OUT = {"__pycache__", "build", "dist", "_build", "crawl.log"}


def not_in_git(folder: str, names: list[str]) -> set[str]:
    hidden = {name for name in names if name.startswith(".") and name not in KEPT}
    return hidden | {
        name for name in names if name in LEFT_OUT or name.endswith(".egg-info")
    }


@pytest.mark.process
@pytest.mark.slow
def test_what_is_built_has_all_that_it_should(
    tmp_path: Path, setup_cfg: configparser.ConfigParser
) -> None:
    source, wheel = built(tmp_path)
    clone = tmp_path / "clone"
    there = {
        path.relative_to(clone).as_posix()
        for path in clone.rglob("*")
        if path.is_file()
    }
    package = {name for name in there if name.startswith("scrapy_rep/")}
    info = f"scrapy_rep-{scrapy_rep.__version__}.dist-info/"
    about = {name.removeprefix(info) for name in wheel - package}
    assert {"METADATA", "RECORD", "entry_points.txt", "licenses/LICENSE"} <= about
    assert wheel == package | {name for name in wheel if name.startswith(info)}
    written = metadata.PathDistribution(
        zipfile.Path(next(tmp_path.glob("*.whl")), info)
    ).metadata
    assert written["License-Expression"] == "BSD-3-Clause"
    assert written.get_payload() == (ROOT / "PACKAGE.md").read_text("utf-8")
    forge = {name for name in there if name.startswith(".github/")} | {".gitignore"}
    made = {name for name in there if ".egg-info/" in name or name.startswith("build/")}
    assert there - made - forge <= source
    added = {name for name in source - there if ".egg-info/" not in name}
    assert added <= {"PKG-INFO", "setup.cfg"}


@pytest.mark.process
@pytest.mark.scrapy_api
def test_imports_load_neither_scrapy_nor_a_reactor() -> None:
    """The core works without Scrapy, which installs a reactor only when it knows which one."""
    code = (
        "import sys, warnings\n"
        "import scrapy_rep, scrapy_rep.signals, scrapy_rep.protocol\n"
        "from scrapy_rep.protocol import RobotsTxt, Decision, Rule, Origin\n"
        "scrapy_rep.__version__\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "print(*roots & {'scrapy', 'twisted', 'w3lib', 'redis'})\n"
        "warnings.simplefilter('ignore')\n"  # of Twisted 21.7 on Python 3.11
        "from scrapy_rep import *\n"
        "print('twisted.internet.reactor' in sys.modules)"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "\nFalse\n")


@pytest.mark.scrapy_api
def test_every_public_name_can_be_imported() -> None:
    for name in scrapy_rep.__all__:
        assert getattr(scrapy_rep, name).__name__ == name
    assert {"Addon", "RepMiddleware", "RobotParser", "may_fetch"} <= {
        *scrapy_rep.__all__
    }
    with pytest.raises(
        AttributeError, match="'scrapy_rep' has no attribute 'Nonsense'"
    ):
        scrapy_rep.Nonsense  # noqa: B018
    assert {*scrapy_rep.__all__, "__doc__", "__name__"} <= {*dir(scrapy_rep)}


def test_type_checkers_read_every_public_name() -> None:
    manual = (ROOT / "docs" / "api.md").read_text("utf-8")
    names = set(re.findall(r"auto(?:class|function):: scrapy_rep[\w.]*\.(\w+)", manual))
    names |= {*re.findall(r":members: (Robots.+)", manual)[0].split(", ")}
    names |= {name for name in vars(scrapy_rep.signals) if not name.startswith("_")}
    names |= {*scrapy_rep.__all__, *scrapy_rep.storages.__all__}
    assert len(names) > 40
    listed = re.findall(
        r"(?s)__all__ = (\[.+?\])", (PACKAGE / "__init__.py").read_text("utf-8")
    )
    assert [ast.literal_eval(one) for one in listed] == [list(scrapy_rep._HOMES)]
    used = (ROOT / "tests" / "typing" / "user.py").read_text("utf-8")
    assert {
        name for name in names if len(re.findall(rf"\b{name}\b", used)) < 2
    } == set()


def test_sections_that_the_code_names_are_in_the_specification() -> None:
    there = re.findall(
        r"^## (\d+)\.", (ROOT / "docs/REP.md").read_text("utf-8"), re.MULTILINE
    )
    code = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    named = re.findall(r"REP\.md,?\s+sections?\s+([\d,\sand]*\d)", code)
    numbers = set(re.findall(r"\d+", " ".join(named)))
    assert len(numbers) > 5
    assert numbers - {*there} == set()
