"""What can end a command early, each in one line and without a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.commands.inputs import InputError
from scrapy_rep.commands.lookup import CannotRun
from scrapy_rep.commands.status import Status
from scrapy_rep.commands.terminal import OutputClosed, complain
from scrapy_rep.exceptions import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable


def status_of(action: Callable[[], int]) -> int:
    """Call *action* and return its exit status, or that of what ended it."""
    try:
        return action()
    except (InputError, SettingsError) as error:
        complain(str(error))
        return Status.USAGE
    except CannotRun as error:
        complain(str(error))
        return Status.UNREACHABLE
    except OutputClosed:
        return Status.GOOD
