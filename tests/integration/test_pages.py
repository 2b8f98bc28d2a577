"""The pages to a browser without a script, and to one that somebody would like to trick."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import requests
from convertq.queue.errors import Code
from convertq.web.bulk_upload import MAX_FILES
from convertq.web.wording import AWAY, BUSY, ERRORS
from psycopg import sql
from pytest_postgresql.executors import NoopExecutor
from requests import Response

from tests.conftest import Server, Web
from tests.web_client import PDF, Visitor, error_of
from tests.whole_site import Makings, WholeSite, whole_site

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>\u202efdp.exe'


@pytest.fixture(scope="module")
def whole(
    pg_server: Server, template: NoopExecutor, admin: psycopg.Connection, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WholeSite]:
    folder = tmp_path_factory.mktemp("site")
    with whole_site(Makings(pg_server, template, admin), folder, workers=False, MAX_UPLOAD_BYTES=3 << 20) as up:
        yield up


@pytest.fixture
def visitor(whole: WholeSite) -> Visitor:
    return whole.site.visitor()


def pdf(text: str = "") -> bytes:
    """Another one each time: the same content would join the job that is there."""
    return PDF + f"% {text} {uuid4()}\n".encode()


def send(visitor: Visitor, *files: tuple[str, bytes], **fields: str) -> Response:
    """As a form without a script does."""
    return visitor.post("/upload", files=[("file", file) for file in files], data=fields)


class Reader(HTMLParser):
    """Every tag with its attributes, and the text outside of scripts and templates."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._aside: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag in ("script", "template"):
            self._aside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._aside and self._aside[-1] == tag:
            self._aside.pop()

    def handle_data(self, data: str) -> None:
        if not self._aside:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [
            found for name, found in self.tags if name == tag and all(found.get(k) == v for k, v in attributes.items())
        ]


def read(answer: Response) -> Reader:
    assert answer.headers["Content-Type"].startswith("text/html")
    return Reader(answer.text)


# -- without a script --


def test_the_list_is_in_the_page_itself(visitor: Visitor) -> None:
    visitor.submitted(pdf(), name="março.pdf")
    page = read(visitor.get("/"))
    assert "março.pdf" in page.text
    assert "Waiting in line" in page.text
    assert page.all("meta", **{"http-equiv": "refresh"}), "it comes up to date by itself"


def test_an_empty_list_says_what_will_be_there(visitor: Visitor) -> None:
    page = read(visitor.get("/"))
    assert "Nothing converted yet" in page.text
    assert not page.all("meta", **{"http-equiv": "refresh"})


def test_a_form_uploads_many_files_at_once(visitor: Visitor, whole: WholeSite) -> None:
    big = pdf("x" * (2 << 20))
    answer = send(visitor, ("one.pdf", pdf()), ("two.pdf", big), ("three.pdf", pdf()))
    assert [step.status_code for step in answer.history] == [303]
    page = read(answer)
    assert "3 files uploaded." in page.text
    assert all(name in page.text for name in ("one.pdf", "two.pdf", "three.pdf"))
    [job] = [job for job in visitor.get("/api/jobs").json()["jobs"] if job["original_filename"] == "two.pdf"]
    assert whole.documents.source(job["id"]).read_bytes() == big


def test_what_is_refused_is_listed_with_the_reason_and_the_rest_is_taken(visitor: Visitor) -> None:
    too_large = pdf("x" * (3 << 20))
    page = read(
        send(visitor, ("letter.docx", b"PK\3\4"), ("huge.pdf", too_large), ("fine.pdf", pdf()), ("no.pdf", b""))
    )
    assert "1 file uploaded, 3 files not accepted." in page.text
    assert ERRORS[Code.NOT_PDF][0] in page.text
    assert "A file may have up to 3 MB." in page.text
    jobs = {job["original_filename"]: job["status"] for job in visitor.get("/api/jobs").json()["jobs"]}
    assert jobs == {"letter.docx": "failed", "huge.pdf": "failed", "fine.pdf": "queued"}


def test_more_files_than_a_form_may_have_are_told_from_those_that_were_taken(visitor: Visitor) -> None:
    answer = send(visitor, *[(f"{number}.pdf", pdf()) for number in range(MAX_FILES + 1)])
    assert answer.status_code == 400
    assert f"The first {MAX_FILES} files were taken" in read(answer).text
    assert visitor.get("/api/jobs").json()["active"] == MAX_FILES


def test_a_visitor_with_many_unfinished_files_is_told_to_wait(web: Web) -> None:
    visitor = web(SESSION_MAX_ACTIVE=1).visitor()
    page = read(send(visitor, ("one.pdf", pdf()), ("two.pdf", pdf())))
    assert "1 file uploaded, 1 file not taken, because many of yours are unfinished" in page.text


@pytest.mark.parametrize("name", ["", "x"])
def test_a_form_without_a_file_is_told_so_on_a_page(visitor: Visitor, name: str) -> None:
    answer = visitor.post("/upload", files=[(name or "file", ("", b""))])
    page = read(answer)
    assert answer.status_code == 400
    assert "No file was chosen" in page.text
    assert page.all("a", href="/")


def test_what_is_no_form_is_refused_on_a_page(visitor: Visitor) -> None:
    assert visitor.post("/upload", data=b"x", headers={"Content-Type": "text/plain"}).status_code == 415
    broken = {"Content-Type": "multipart/form-data; boundary=b"}
    assert visitor.post("/upload", data=b"--b\r\nnonsense", headers=broken).status_code == 400


def test_a_failed_job_is_retried_by_its_form(visitor: Visitor, whole: WholeSite) -> None:
    job_id = visitor.submitted(pdf(), name="again.pdf")
    fail(whole, job_id, "GW_TIMEOUT")
    page = read(visitor.get("/"))
    assert ERRORS[Code.GW_TIMEOUT][0] in page.text
    [form] = page.all("form", action=f"/jobs/{job_id}/retry")
    assert "hidden" not in form
    answer = visitor.post(str(form["action"]))
    assert [step.status_code for step in answer.history] == [303]
    assert whole.documents.row(job_id)["status"] == "queued"


def test_a_result_is_a_plain_link(visitor: Visitor, whole: WholeSite) -> None:
    job_id = visitor.submitted(pdf(), name="done.pdf")
    whole.documents.result(job_id).write_text("<done/>")
    move(whole, job_id, "complete", result_path="kept", completed_at="now")
    [link] = read(visitor.get("/?status=complete")).all("a", href=f"/api/jobs/{job_id}/download")
    assert "hidden" not in link
    assert visitor.get(str(link["href"])).text == "<done/>"


def test_a_failed_job_whose_file_is_gone_asks_for_it_again(visitor: Visitor, whole: WholeSite) -> None:
    job_id = visitor.submitted(pdf())
    fail(whole, job_id, "GW_5XX")
    whole.documents.source(job_id).unlink()
    page = read(visitor.get("/?status=failed"))
    assert "upload the file again" in page.text
    assert "hidden" in page.all("form", action=f"/jobs/{job_id}/retry")[0]


def test_older_jobs_are_a_link_away(visitor: Visitor, whole: WholeSite) -> None:
    for number in range(60):
        whole.documents.insert(
            owner_session_id=visitor.owner, original_filename=f"n{number}.pdf", sha256=f"{number:064}"
        )
    first = read(visitor.get("/"))
    [older] = [link for link in first.all("a") if "before=" in (link["href"] or "")]
    second = read(visitor.get(str(older["href"])))
    assert len(first.all("li", **{"class": "job"})) == 50 + 1  # one is the template that the script clones
    assert len(second.all("li", **{"class": "job"})) == 10 + 1


def test_while_the_breaker_is_open_the_page_says_that_jobs_resume_by_themselves(
    visitor: Visitor, whole: WholeSite
) -> None:
    visitor.submitted(pdf())
    whole.documents.conn.execute("UPDATE circuit_breaker SET state = 'open', opened_at = now()")
    try:
        page = read(visitor.get("/"))
    finally:
        whole.documents.conn.execute("UPDATE circuit_breaker SET state = 'closed', opened_at = NULL")
    assert "hidden" not in page.all("div", id="busy")[0]
    assert BUSY[0] == "Converter busy — jobs will resume automatically"
    assert "Paused" in page.text
    assert "hidden" in read(visitor.get("/")).all("div", id="busy")[0]


def test_while_the_database_is_away_the_pages_say_so_in_words(web: Web) -> None:
    visitor = web(DATABASE_URL="postgresql://nobody@127.0.0.1:1/nothing").visitor()
    answer = visitor.get("/")
    page = read(answer)
    assert answer.status_code == 503
    assert "hidden" not in page.all("div", id="away")[0]
    assert page.all("meta", **{"http-equiv": "refresh"})
    refused = send(visitor, ("a.pdf", pdf()))
    assert refused.status_code == 503
    assert AWAY[0] in read(refused).text
    assert read(visitor.get("/admin")).all("form")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/nothing"), ("GET", "/admin/"), ("PUT", "/"), ("GET", "/static/x")]
)
def test_an_address_that_is_not_there_is_a_page_for_people_and_json_for_programs(
    visitor: Visitor, method: str, path: str
) -> None:
    code = 405 if method == "PUT" else 404
    answer = visitor.request(method, path, headers={"Accept": BROWSER})
    page = read(answer)
    assert answer.status_code == code
    assert "That did not work" in page.text
    assert page.all("a", href="/")
    assert error_of(visitor.request(method, path)) == (code, "BAD_REQUEST" if code == 405 else "NOT_FOUND")


def test_the_api_answers_every_client_in_json(visitor: Visitor) -> None:
    for path in ("/api/nothing", "/api/jobs/x", "/api/jobs?limit=x"):
        assert error_of(visitor.get(path, headers={"Accept": BROWSER}))[0] in (400, 404)


@pytest.mark.parametrize("path", ["/", "/admin", "/nothing"])
def test_every_page_has_a_description_for_search_engines(visitor: Visitor, path: str) -> None:
    [description] = read(visitor.get(path, headers={"Accept": BROWSER})).all("meta", name="description")
    assert 50 <= len(description["content"] or "") <= 160


def test_a_file_that_another_program_gave_no_name_is_shown_without(visitor: Visitor, whole: WholeSite) -> None:
    for number, name in enumerate((None, "")):
        whole.documents.insert(owner_session_id=visitor.owner, original_filename=name, sha256=f"{number:064}")
    page = read(visitor.get("/"))
    assert page.text.count("(no name)") >= 2
    assert "None" not in page.text


def test_a_form_that_announces_more_than_all_its_files_may_have_is_refused_unread(visitor: Visitor) -> None:
    announced = str(MAX_FILES * (3 << 20) + (1 << 20))
    kind = {"Content-Type": "multipart/form-data; boundary=b", "Content-Length": announced}
    asked = requests.Request("POST", f"{visitor.url}/upload", headers={**visitor.headers, **kind}).prepare()
    answer = visitor.send(asked, timeout=10)
    assert answer.status_code == 413
    assert "send fewer at a time" in read(answer).text


def test_the_page_that_comes_up_to_date_does_not_say_again_what_was_uploaded(visitor: Visitor) -> None:
    page = read(send(visitor, ("one.pdf", pdf())))
    assert "1 file uploaded." in page.text
    [again] = page.all("meta", **{"http-equiv": "refresh"})
    assert again["content"] == "10; url=/"


# -- those who would like to trick it --


def test_a_hostile_file_name_is_text_and_nothing_else(visitor: Visitor, whole: WholeSite) -> None:
    whole.documents.insert(owner_session_id=visitor.owner, original_filename=HOSTILE)
    answer = visitor.get("/")
    page = read(answer)
    assert HOSTILE in page.text
    assert not page.all("img", src="x")
    assert "<script>alert" not in answer.text
    assert not [attributes for _, attributes in page.tags if any(name.startswith("on") for name in attributes)]


@pytest.mark.parametrize("path", ["/", "/admin", "/jobs/x"])
def test_nothing_in_a_page_needs_more_than_the_policy_allows(visitor: Visitor, path: str) -> None:
    answer = visitor.get(path)
    policy = answer.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for tag, attributes in Reader(answer.text).tags:
        assert "style" not in attributes
        assert tag != "style"
        if tag == "script":
            assert attributes.get("src") or attributes.get("type") == "application/json"
        for name in ("src", "href", "action"):
            assert re.match(r"[/#]|$", attributes.get(name) or ""), f"{tag} {name}={attributes.get(name)}"


def test_what_the_pages_are_made_of_is_served_and_names_no_other_host(visitor: Visitor) -> None:
    static = Path(__file__).parents[2] / "web" / "static"
    for path in static.iterdir():
        answer = visitor.get(f"/static/{path.name}")
        assert answer.status_code == 200
        assert answer.content == path.read_bytes()
        others = set(re.findall(r"https?://[\w.]+", answer.text)) - {"http://www.w3.org"}
        assert not others


@pytest.mark.parametrize("path", ["/upload", f"/jobs/{UUID(int=1)}/retry"])
def test_another_sites_form_is_refused(whole: WholeSite, path: str) -> None:
    stranger = whole.site.visitor(**{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"})
    assert stranger.post(path, files=[("file", ("a.pdf", pdf()))]).status_code == 403


def test_another_visitors_job_is_neither_shown_nor_retried(visitor: Visitor, whole: WholeSite) -> None:
    job_id = visitor.submitted(pdf(), name="private.pdf")
    fail(whole, job_id, "GW_5XX")
    other = whole.site.visitor()
    assert "private.pdf" not in other.get("/").text
    answer = other.post(f"/jobs/{job_id}/retry")
    assert answer.status_code == 403
    assert "private.pdf" not in read(answer).text
    assert other.get(f"/?before={job_id}").status_code == 403
    assert whole.documents.row(job_id)["status"] == "failed"


def test_without_a_token_there_is_no_admin_page(web: Web, visitor: Visitor) -> None:
    assert visitor.get("/admin").status_code == 200
    assert web(ADMIN_TOKEN=None).visitor().get("/admin").status_code == 404


@pytest.mark.parametrize(
    "query", ["status=nonsense", "before=nonsense", "sent=x", "sent=-1&refused=99999999999999999999"]
)
def test_a_strange_address_shows_the_page(visitor: Visitor, query: str) -> None:
    assert visitor.get(f"/?{query}").status_code == 200


# -- the states of a job, as its worker would leave it --


def move(whole: WholeSite, job_id: Any, status: str, **columns: Any) -> None:
    conn = whole.documents.conn
    conn.execute(
        "UPDATE jobs SET status = 'processing', leased_by = 'x/1', lease_expires_at = now() WHERE id = %s", [job_id]
    )
    given = {"status": status, "leased_by": None, "lease_expires_at": None, **columns}
    change = sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(c), sql.Placeholder(c)) for c in given)
    conn.execute(sql.SQL("UPDATE jobs SET {} WHERE id = %(id)s").format(change), {**given, "id": job_id})


def fail(whole: WholeSite, job_id: Any, code: str) -> None:
    move(whole, job_id, "failed", error_code=code, error_message="the gateway answered 502", failed_at="now")
