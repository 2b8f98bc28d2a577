"""The generated part of systemd/convertq.env.example: every setting; a default is shown commented out."""

from __future__ import annotations

import textwrap

from convertq.queue.setting import Setting
from convertq.queue.settings import SECTIONS

#: what a host under systemd sets
GIVEN = {
    "DATABASE_URL": "'postgresql://convertq:secret@db.example:5432/convert_jobs?schema=public'",
    "GATEWAY_URL": "'http://gateway.example:8002'",
    "UPLOADS_DIR": "/var/lib/convertq/uploads",
    "RESULTS_DIR": "/var/lib/convertq/results",
    "WORKER_ENVIRONMENT": "production",
}
#: examples of settings that have no default
EXAMPLES = {"LOG_FORMAT": "json", "LOG_FILE": "/var/log/convertq/convertq.log", "METRICS_PORT": "9109"}


def settings() -> str:
    sections = [f"# -- {name} --\n\n" + "".join(map(_setting, known)) for name, known in SECTIONS.items()]
    return "\n".join(sections)


def _setting(setting: Setting) -> str:
    about = textwrap.fill(setting.about.replace("`", ""), 118, initial_indent="# ", subsequent_indent="# ")
    return f"{about}\n{_assignment(setting)}\n"


def _assignment(setting: Setting) -> str:
    if setting.variable in GIVEN:
        return f"{setting.variable}={GIVEN[setting.variable]}"
    return f"#{setting.variable}={setting.default or EXAMPLES.get(setting.variable, '')}"
