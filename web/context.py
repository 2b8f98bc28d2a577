"""What every request finds in its application: the configuration, the directories, the connections, the log."""

from __future__ import annotations

from dataclasses import dataclass

from convertq.web.pool import Connections
from convertq.worker.config import Config
from convertq.worker.files import Files
from convertq.worker.log import Log
from flask import Flask, current_app

NAME = "convertq"


@dataclass(frozen=True)
class Web:
    config: Config
    files: Files
    connections: Connections
    log: Log

    def put_into(self, app: Flask) -> None:
        app.extensions[NAME] = self


def web() -> Web:
    found: Web = current_app.extensions[NAME]
    return found
