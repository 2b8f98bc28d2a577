"""The application: which routes there are, what stands before and after each, and how every error is told."""

from __future__ import annotations

from pathlib import Path

from convertq.web.admin_api import admin_api, metrics
from convertq.web.admin_token import require_admin
from convertq.web.api import api
from convertq.web.context import Web, web
from convertq.web.guard import add_headers, refuse_other_sites
from convertq.web.json_answer import error_answer
from convertq.web.pages import pages, say
from convertq.web.pool import Connections
from convertq.web.probes import probes
from convertq.web.refusal import Refusal
from convertq.web.session import keep_owner
from convertq.worker.config import Config
from convertq.worker.errors import Code, one_line
from convertq.worker.files import Files
from convertq.worker.log import Log
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

OF_OPERATORS = (admin_api.name, metrics.name)
FORM_LIMIT = 1 << 20  # bytes, of a body that is kept in memory; an upload is read as a stream, with its own limit


def create_app(config: Config, log: Log) -> Flask:
    """Whoever runs it opens its connections, after the fork."""
    # nothing is kept in instance_path; named, because Flask cannot guess it from a package that is mapped to its folder
    app = Flask("convertq.web", instance_path=str(Path(__file__).parent))
    app.config["MAX_CONTENT_LENGTH"] = FORM_LIMIT
    app.json.sort_keys = False  # type: ignore[attr-defined]
    Web(config, Files(config.uploads_dir, config.results_dir), Connections(config, log), log).put_into(app)
    for blueprint in (api, admin_api, metrics, probes, pages):
        app.register_blueprint(blueprint)
    app.before_request(admit)
    app.after_request(keep_owner)
    app.after_request(add_headers)
    app.register_error_handler(Refusal, error_answer)
    app.register_error_handler(HTTPException, of_http)
    app.register_error_handler(Exception, of_a_bug)
    return app


def admit() -> None:
    """Operators with their token, before all else; and what changes something only from our own pages."""
    if request.routing_exception is not None:
        return  # there is nothing to be admitted to, and that is said
    if request.blueprint in OF_OPERATORS:
        require_admin()
    refuse_other_sites()


def of_http(error: HTTPException) -> Response:
    """What Flask and Werkzeug refuse by themselves: an unknown route, a method that a route has not, a bad range."""
    status = error.code or 500
    code = Code.TOO_LARGE if status == 413 else Code.UNKNOWN
    kept = {name: value for name, value in error.get_headers() if name in ("Allow", "Content-Range", "Location")}
    said = "there is nothing here" if status == 404 else one_line(error.description or error.name)
    return _told(Refusal(status, said, code, kept))


def of_a_bug(error: Exception) -> Response:
    web().log("web_error", error_message=one_line(f"{type(error).__name__}: {error}"), exc_info=error)
    return _told(Refusal(500, "something went wrong here; it has been noted"))


def _told(refusal: Refusal) -> Response:
    """On a page to who looks at pages, with a way back; the API answers in JSON whoever asks."""
    is_for_people = request.accept_mimetypes.best_match(["application/json", "text/html"]) == "text/html"
    return say(refusal) if is_for_people and not request.path.startswith("/api/") else error_answer(refusal)
