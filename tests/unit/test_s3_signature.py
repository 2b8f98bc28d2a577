"""The signature of a request to object storage, against an example that AWS has published and against minio's."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from urllib.parse import urlsplit

from convertq.queue.store.s3_signature import Signer
from minio.credentials.credentials import Credentials
from minio.signer import sign_v4_s3

CREDENTIALS = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
NOTHING = hashlib.sha256(b"").hexdigest()


def test_the_published_example_has_its_published_signature() -> None:
    headers = {
        "host": "examplebucket.s3.amazonaws.com", "range": "bytes=0-9", "x-amz-content-sha256": NOTHING,
        "x-amz-date": "20130524T000000Z",
    }  # fmt: skip
    found = Signer("us-east-1").authorization(CREDENTIALS, "GET", "/test.txt", "", headers)
    assert found.endswith("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")


def test_it_is_that_of_minio_on_every_day_and_after_the_credentials_were_replaced() -> None:
    signer = Signer("eu-west-1")
    others = Credentials("OTHER", "another-secret", "a-token")
    for day, credentials in ((1, CREDENTIALS), (2, CREDENTIALS), (2, others), (3, CREDENTIALS)):
        at = datetime(2026, 11, day, 12, 30, tzinfo=UTC)
        url = urlsplit("http://127.0.0.1:8333/bucket/uploads/a%20b.pdf?list-type=2&prefix=x%2Fy")
        headers = {
            "host": url.netloc, "if-none-match": "*", "x-amz-content-sha256": NOTHING,
            "x-amz-date": at.strftime("%Y%m%dT%H%M%SZ"),
        }  # fmt: skip
        theirs = sign_v4_s3(
            method="PUT", url=url, region="eu-west-1", headers=dict(headers), credentials=credentials,
            content_sha256=NOTHING, date=at,
        )  # fmt: skip
        ours = signer.authorization(credentials, "PUT", url.path, url.query, headers)
        assert ours == theirs["Authorization"]
