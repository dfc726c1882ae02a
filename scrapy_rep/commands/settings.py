"""``scrapy settings``: Scrapy's own command, which then knows our defaults too.

It has no crawler, so the add-on can't set them. Scrapy imports this for every command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands import settings

if TYPE_CHECKING:
    from argparse import Namespace


class SettingsCommand(settings.Command):
    """``scrapy settings``"""

    def process_options(self, args: list[str], opts: Namespace) -> None:
        super().process_options(args, opts)
        from scrapy_rep.settings import set_defaults

        assert self.settings is not None
        set_defaults(self.settings)
