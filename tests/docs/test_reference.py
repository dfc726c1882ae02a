"""The reference says what the code does; CONTRIBUTING.md, DESIGN.md, workflows name what is there."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

from scrapy.settings import Settings

from scrapy_rep import signals
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.reporting.report.reading import DROPS
from scrapy_rep.reporting.summary import STATS
from scrapy_rep.seeding.selection import Reason
from scrapy_rep.settings import DEFAULTS, RepSettings
from tests.docs.examples import PAGES, section
from tests.helpers.docs import ROOT, blocks, page
from tests.helpers.rows import every_row

TEXTS = dict(re.findall(r"(?ms)^### (\w+)\n(.*?)(?=^##|\Z)", page("settings.md")))
CODE = [
    (path.name, code)
    for path in PAGES
    for code in blocks(path.read_text("utf-8"), "python")
]


def test_each_setting_has_a_heading_a_type_a_default_a_reason_and_an_example() -> None:
    assert TEXTS.keys() == DEFAULTS.keys()
    with every_row() as row:
        for name, default in DEFAULTS.items():
            with row(name):
                said = re.match(r"\n\*.+\*, `(.+)`\n\n\S", TEXTS[name])
                assert said and ast.literal_eval(said[1]) == default
                assert "Change it if" in " ".join(TEXTS[name].split())
                example = re.search(
                    rf"^```python\n{name} = (.+)\n```$", TEXTS[name], re.MULTILINE
                )
                assert example
                value = eval(example[1], {})  # noqa: S307 (our own manual)
                assert value != default, "an example that changes nothing"
                RepSettings.from_settings(Settings({name: value}))


def test_the_table_of_settings_has_each_with_its_default() -> None:
    text = page("settings.md").partition("\n## ")[0]
    rows = re.findall(
        r"^\| \[`(\w+)`\]\(#(\w+)\) \| `(.+)` \| .+ \|$", text, re.MULTILINE
    )
    assert [anchor for _, anchor, _ in rows] == [name.lower() for name in TEXTS]
    assert {name: ast.literal_eval(default) for name, _, default in rows} == DEFAULTS


def test_there_is_one_command_to_install_it() -> None:
    """And one for a clone."""
    paths = [ROOT / "README.md", ROOT / "PACKAGE.md", *ROOT.glob("docs/*.md")]
    text = "".join(path.read_text("utf-8") for path in paths)
    installs = re.findall(r"\bpipx? install\S* ([^\n`]+)", text)
    assert {re.sub(r'"|\[.*\]', "", name) for name in installs} == {
        "scrapy-rep",
        ".",
        "prometheus_client",
    }


def test_every_signal_is_documented() -> None:
    public = [name for name in vars(signals) if not name.startswith("_")]
    text = section(page("signals-and-stats.md"), "Signals")
    assert sorted(re.findall(r"^- `(\w+)`: ", text, re.MULTILINE)) == sorted(public)


def test_every_stat_is_documented() -> None:
    code = "".join(path.read_text("utf-8") for path in ROOT.glob("scrapy_rep/**/*.py"))
    counted = set(re.findall(r'"(rep/[a-z_/]+[a-z])"', code))
    text = section(page("signals-and-stats.md"), "Stats")
    documented = set(re.findall(r"`(rep/[a-z_/]+)`", text))
    assert counted
    assert counted <= documented
    # What the code puts together of two parts.
    outcomes = {f"rep/outcome/{outcome.value}" for outcome in Outcome}
    pages = {f"rep/page/{verdict}" for verdict in DROPS if "usage" not in verdict}
    beyond = {
        f"rep/beyond/{name}"
        for name in ("overrides", "forbidden", "challenge", "unreachable_rules")
    }
    rejected = {reason.stat for reason in Reason}
    assert documented == counted | outcomes | pages | beyond | rejected


def test_the_summary_has_words_for_each_stat_of_its_kinds() -> None:
    """A new one would go untold."""
    words = {name for stats in STATS.values() for name in stats}
    kinds = {name.split("/")[1] for name in words}
    lists = tuple(name for name in words if name.endswith("/"))
    text = section(page("signals-and-stats.md"), "Stats")
    documented = set(re.findall(r"`(rep/[a-z_/]+)`", text))
    assert [
        name
        for name in documented
        if name.split("/")[1] in kinds
        and name not in words
        and not name.startswith(lists)
    ] == []


def test_an_example_in_python_is_sound() -> None:
    """It compiles, and the settings in it have values that they can have. Doctests are run."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    with every_row() as row:
        for name, code in CODE:
            with row(f"{name}: {code}"):
                compile(code if not code.startswith(">>>") else "", name, "exec", flags)
                values: dict[str, object] = {}
                for line in re.findall(r"^REP_\w+ = .+$", code, re.MULTILINE):
                    exec(line, values)  # noqa: S102
                ours = {
                    name: value
                    for name, value in values.items()
                    if name.startswith("REP_")
                }
                assert ours.keys() <= DEFAULTS.keys()
                RepSettings.from_settings(Settings(ours))


def test_spiders_shown_are_those_of_the_example() -> None:
    paths = ROOT.glob("example_project/example/spiders/*.py")
    spiders = "".join(path.read_text("utf-8") for path in paths)
    name = re.compile(r"^class (\w+)", re.MULTILINE)
    shown = [
        code for _, code in CODE if set(name.findall(code)) & set(name.findall(spiders))
    ]
    assert len(shown) >= 2
    assert [code for code in shown if code not in spiders] == []


def test_links_lead_to_pages_and_headings() -> None:
    """As the repository's own site shows them; Sphinx checks its own."""
    broken = []
    others = [
        ROOT / name for name in ("SECURITY.md", "CHANGELOG.md", "benchmarks/README.md")
    ]
    for path in [*PAGES, *others]:
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
            file, _, anchor = link.partition("#")
            if ":" in link:
                continue
            target = path.parent / file if file else path
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{path.name}: {link}")
    assert broken == []


def anchors(path: Path) -> set[str]:
    text = re.sub(
        r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")
        for title in titles
    }


TEXT = ROOT.joinpath("CONTRIBUTING.md").read_text("utf-8")


def config(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    found.read(ROOT / name, encoding="utf-8")
    return found


def test_environments_and_files_that_are_named_are_there() -> None:
    tox = config("tox.ini")
    there = {name.partition(":")[2] for name in tox.sections()}
    there |= {*tox["tox"]["envlist"].split(", ")}
    named = re.findall(r"tests/run\.py -e ([\w-]+)", TEXT)
    (others,) = re.findall(r"`python3 tests/run\.py -e lint`, or (.*?) \|", TEXT)
    assert {*named, *re.findall(r"`([\w-]+)`", others)} <= there
    tests = re.findall(r"(tests/\S+\.py) -k (test_\w+)", TEXT)
    assert tests
    for path, name in tests:
        assert f"def {name}(" in ROOT.joinpath(path).read_text("utf-8")
    named = re.findall(r"`((?:[\w]+/)+(?:\w+\.py)?)`|`(\w+\.py)`", page("DESIGN.md"))
    paths = re.findall(r"\b(?:tests|docs|scrapy_rep)/[\w/]+\.(?:py|md)\b", TEXT)
    paths += [one or other for one, other in named]
    assert len(paths) > 20
    folders = (ROOT, ROOT / "scrapy_rep")
    assert [
        one for one in paths if not any((folder / one).exists() for folder in folders)
    ] == []


def names_by_class() -> dict[str, set[str]]:
    """By class: the names of its methods and attributes, as far as its body has them."""
    names: dict[str, set[str]] = {}
    for path in ROOT.glob("scrapy_rep/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                names.setdefault(node.name, set()).update(names_in(node))
    return names


def names_in(node: ast.ClassDef) -> set[str]:
    names = set()
    for inner in ast.walk(node):
        match inner:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(inner.name)
            case ast.Attribute(value=ast.Name("self"), attr=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
    return names


def test_classes_and_methods_that_are_named_are_there() -> None:
    """In DESIGN.md, and methods in CONTRIBUTING.md, too; the test above looks for files."""
    text = page("DESIGN.md")
    names = names_by_class()
    methods = re.findall(r"`([A-Z]\w+)\.(\w+)", text + TEXT)
    assert len(methods) > 20
    missing = [
        f"{owner}.{name}"
        for owner, name in methods
        if name not in names.get(owner, set())
    ]
    classes = set(re.findall(r"`([A-Z][a-z]\w+)`", text))
    not_ours = {"IgnoreRequest"}
    missing += sorted(classes - names.keys() - not_ours)
    assert missing == []


def test_every_folder_is_explained() -> None:
    """Marks are in tests/README.md, see tests/test_how_to.py."""
    layout = section(TEXT, "Layout")
    folders = [path.parent.name for path in ROOT.glob("scrapy_rep/*/__init__.py")]
    assert [folder for folder in folders if f"{folder}/" not in layout] == []


def test_workflows_run_the_same_commands() -> None:
    workflows = [
        path.read_text("utf-8") for path in ROOT.glob(".github/workflows/*.yml")
    ]
    commands = re.findall(r"- run: (.+)$", "\n".join(workflows), re.MULTILINE)
    assert len(commands) >= 3 or not workflows
    ours = (".ci/run", "python3 tests/run.py")
    assert [one for one in commands if not any(our in one for our in ours)] == []
