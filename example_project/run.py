"""See scrapy-rep work: python3 example_project/run.py

Needs Python only. Makes a virtual environment beside this file (.venv-example), installs the
package of this repository there, starts the small web sites of example/sites.py on this machine,
crawls them, and prints a table of what happened.

    python3 example_project/run.py SPIDER [OPTION...]

runs one spider of the ladder and shows its log; the options are those of `scrapy crawl`.

    python3 example_project/run.py fleet

runs three crawlers that share a queue (scrapy-redis); it needs redis-server.

    python3 example_project/run.py serve

keeps the sites up until Ctrl-C, so that every command of the manual (docs/) can be typed as it
stands in another terminal.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
VENV = HERE / ".venv-example"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = (
    VENV / "installed.txt"
)  # written last: without it the environment is not complete
OLDEST_PYTHON = (3, 10)
EXTRAS = "report,usage"  # small ones, so that every command of the manual works
LOG = HERE / "crawl.log"
SPIDERS = {
    file.stem[4:]: file for file in sorted(HERE.glob("example/spiders/s??_*.py"))
}


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_quietly(*command):
    """Run a command. Return its output if it fails, else None."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode else None


def make_environment():
    """Never install into the Python that runs this: many systems rightly forbid that."""
    say("Making a virtual environment in " + str(VENV))
    shutil.rmtree(VENV, ignore_errors=True)
    for module in ("venv", "virtualenv"):
        if run_quietly(sys.executable, "-m", module, str(VENV)) is None:
            return
        shutil.rmtree(VENV, ignore_errors=True)
    sys.exit(
        "This Python cannot make virtual environments. On Debian and Ubuntu: "
        "sudo apt install python3-venv; elsewhere: install virtualenv."
    )


def install():
    # The package is installed as "editable", so a change of its source needs nothing here. A change
    # of its requirements does, and so does another Python, or another place.
    wanted = "\n".join(
        [sys.version, str(REPOSITORY), EXTRAS]
        + [
            (REPOSITORY / name).read_text("utf-8")
            for name in ("setup.cfg", "pyproject.toml")
        ]
    )
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text("utf-8") == wanted:
        return
    make_environment()
    say("Installing Scrapy and scrapy-rep there (once; it may take a minute)")
    pip_install("--editable", f"{REPOSITORY}[{EXTRAS}]")
    STAMP.write_text(wanted, "utf-8")


def install_for_fleet():
    if run_quietly(str(PYTHON), "-c", "import redis, scrapy_redis") is not None:
        say("Installing scrapy-redis there (once)")
        pip_install("scrapy-redis", "--editable", f"{REPOSITORY}[redis]")


def pip_install(*what):
    pip = (
        str(PYTHON),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
        "install",
    )
    problem = run_quietly(*pip, *what)
    if problem is not None:
        say(problem)
        sys.exit(
            "pip could not install the package (without a network?); its reason is above."
        )


def crawl(spider, options, log):
    """Run a spider, with its log going to `log`. Returns what failed, a line each."""
    command = [str(PYTHON), "-m", "scrapy", "crawl", spider, *options]
    failures = []

    def follow():
        for line in process.stderr:
            log.write(line)
            if "] ERROR: " in line or "] CRITICAL: " in line:
                failures.append(line)
        if process.wait():
            failures.append(f"Scrapy ended with exit status {process.returncode}\n")

    with subprocess.Popen(
        command, cwd=str(HERE), stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        try:
            follow()
        except KeyboardInterrupt:
            # The terminal told Scrapy as well.
            say("\nStopping after the requests in flight; Ctrl-C again stops at once.")
            follow()
            raise
    return failures


SHELL = f"""\
In another terminal:

    cd {HERE}
    . {PYTHON.parent.relative_to(HERE) / "activate"}
    scrapy robots http://127.0.0.1:8765/private
"""


def main(arguments):
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(
            "scrapy-rep needs Python 3.10 or newer; this is " + sys.version.split()[0]
        )
    spider, *options = arguments or ["all_sites"]
    if spider not in SPIDERS and spider != "serve":
        sys.exit(__doc__ + "\nSpiders: " + " ".join(SPIDERS))

    import fleet

    if spider == "fleet":
        fleet.redis_program()  # exits if it is missing, before anything is installed
    install()
    if spider == "fleet":
        install_for_fleet()

    from example import sites

    if spider == "serve":
        print(SHELL)
        sites.serve()
        return
    asked = {}
    with sites.serving(asked=asked) as addresses:
        os.environ["EXAMPLE_SITES"] = json.dumps(addresses)
        if spider == "fleet":
            say(
                f"Three crawlers are at work; their logs are {fleet.log_of('N')}, N from 1 to 3\n"
            )
            found, failures = fleet.crawl(str(PYTHON), options)
        elif not arguments:
            say(f"Crawling {len(addresses)} sites on this machine; the log is {LOG}\n")
            with LOG.open("w", encoding="utf-8") as log:
                failures = crawl(spider, options, log)
        else:
            failures = crawl(spider, options, sys.stderr)
    if spider == "fleet":
        fleet.show(found, asked)
    if failures:
        sys.exit("\nThe crawl failed:\n" + "".join(failures))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
