"""The Flask application: its routes, the checks before each request, and the form of every error."""

from __future__ import annotations

from pathlib import Path

from convertq.queue.config import Config
from convertq.queue.errors import StorageError, one_line
from convertq.queue.log.lines import Log
from convertq.queue.store import open_store
from convertq.web.admin_api import admin_api, metrics
from convertq.web.admin_token import require_admin
from convertq.web.api import api
from convertq.web.context import Web, web
from convertq.web.http_error import INTERNAL_ERROR, NO_SUCH_PAGE, HttpError, storage_unavailable
from convertq.web.json_response import error_response
from convertq.web.openapi import openapi_document
from convertq.web.pages import error_page, pages
from convertq.web.pool import Connections
from convertq.web.probes import probes
from convertq.web.queue_status import QueueStatus
from convertq.web.reads import ReplicaAwareFlask, reading, reads_replica, set_written_cookie
from convertq.web.replica import Replica
from convertq.web.same_origin import require_same_origin
from convertq.web.security_headers import add_security_headers
from convertq.web.session import set_session_cookie
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

OPERATOR_BLUEPRINTS = (admin_api.name, metrics.name)
MAX_FORM_BYTES = 1 << 20  # of a body that is kept in memory; uploads are streamed, with a limit of their own


def create_app(config: Config, log: Log) -> Flask:
    """The caller opens the connections to the database after the fork: processes cannot share them."""
    # Flask cannot derive instance_path, which is not used, from a package whose folder has another name.
    app = ReplicaAwareFlask("convertq.web", instance_path=str(Path(__file__).parent))
    app.config["MAX_CONTENT_LENGTH"] = MAX_FORM_BYTES
    app.json.sort_keys = False  # type: ignore[attr-defined]
    connections = Connections(config.database, log)
    replica = Replica(config, connections, log) if config.database_read_url else None
    status = QueueStatus(connections, config, reading, reads_replica)
    Web(config, open_store(config), connections, replica, status, log, openapi_document(config)).put_into(app)
    for blueprint in (api, admin_api, metrics, probes, pages):
        app.register_blueprint(blueprint)
    app.before_request(check_access)
    app.after_request(set_session_cookie)
    app.after_request(set_written_cookie)
    app.after_request(add_security_headers)
    app.register_error_handler(HttpError, error_response)
    app.register_error_handler(StorageError, handle_storage_error)
    app.register_error_handler(HTTPException, handle_http_exception)
    app.register_error_handler(Exception, handle_unexpected_error)
    return app


def check_access() -> None:
    """The operator's token is checked first, so that nobody without it learns anything about the operators' routes."""
    if request.routing_exception is not None:
        return  # Flask answers 404 or 405.
    if request.blueprint in OPERATOR_BLUEPRINTS:
        require_admin()
    require_same_origin()


def handle_http_exception(error: HTTPException) -> Response:
    """Gives the errors that Flask and Werkzeug raise (404, 405, 416, …) the form of ours."""
    status = error.code or 500
    kept = {name: value for name, value in error.get_headers() if name in ("Allow", "Content-Range", "Location")}
    message = NO_SUCH_PAGE if status == 404 else one_line(error.description or error.name)
    return _page_or_json(HttpError(status, message, headers=kept))


def handle_storage_error(error: StorageError) -> Response:
    web().log("web_error", error_message=one_line(error.strerror or str(error)))
    return _page_or_json(storage_unavailable())


def handle_unexpected_error(error: Exception) -> Response:
    web().log("web_error", error_message=one_line(f"{type(error).__name__}: {error}"), exc_info=error)
    return _page_or_json(HttpError(500, INTERNAL_ERROR))


def _page_or_json(error: HttpError) -> Response:
    """People get a page with a way back. The API always answers in JSON, even to a browser."""
    prefers_html = request.accept_mimetypes.best_match(["application/json", "text/html"]) == "text/html"
    return error_page(error) if prefers_html and not request.path.startswith("/api/") else error_response(error)
