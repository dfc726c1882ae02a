"""What can end a command early, each in one line and without a traceback; and warnings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy.utils.log import configure_logging

from scrapy_rep.commands.inputs import InputError
from scrapy_rep.commands.lookup import CannotRun
from scrapy_rep.commands.status import Status
from scrapy_rep.commands.terminal import OutputClosed, complain
from scrapy_rep.engine.log import get_logger
from scrapy_rep.exceptions import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.settings import Settings


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
    except OutputClosed as error:
        if not str(error):
            return Status.GOOD
        complain(str(error))
        return Status.USAGE


def set_up_logging(settings: Settings, *, configured: bool) -> None:
    """Have our own warnings on standard error where the log is off, as it is unless somebody
    asks for it.

    :param configured: whether Scrapy has set logging up by now
    """
    if not configured:
        configure_logging(settings)
    if not settings.getbool("LOG_ENABLED"):
        get_logger("scrapy_rep").addHandler(_Complainer(logging.WARNING))


class _Complainer(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())
