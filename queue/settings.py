"""The table of settings: the variable, what it may be, its default and what it does.

docs/configuration.md, the man page and systemd/convertq.env.example are generated from this table (`make docs`).
"""

from __future__ import annotations

from convertq.queue.database.url import parse_database_url, parse_read_url
from convertq.queue.gateway import read_gateways_file
from convertq.queue.pool_size import read_pool_size
from convertq.queue.setting import (
    Setting,
    absolute_path,
    days,
    endpoint_url,
    gateway_url,
    label,
    names,
    one_of,
    port,
    positive,
    region,
    share,
    switch,
    token,
    url_path,
    whole_number,
    zero_or_more,
)
from convertq.queue.storage_url import parse_storage_url

#: section of the documents -> its settings
SECTIONS: dict[str, tuple[Setting, ...]] = {
    "Required": (
        Setting(
            "DATABASE_URL", parse_database_url, None, secret=True, unset="required",
            about="`postgresql://user:password@host:port/database`, also with Prisma's `?schema=NAME`. Every libpq "
            "parameter, service files and password files work, and so does PgBouncer in transaction mode. With several "
            "hosts (`host1:port1,host2:port2`) the one that accepts writes is used.",
        ),
        Setting(
            "GATEWAY_URL", gateway_url, None, secret=True, unset="required by the worker",
            about="The conversion gateway, `http://host:port`, with or without `/process`. Ignored with "
            "`GATEWAYS_FILE`.",
        ),
    ),
    "Database": (
        Setting(
            "DATABASE_DIRECT_URL", parse_database_url, None, secret=True, unset="`DATABASE_URL`",
            about="The same database without the transaction pooler that `DATABASE_URL` leads through: for `convertq "
            "migrate` and for the supervisor, which listens for new jobs.",
        ),
        Setting(
            "DATABASE_READ_URL", parse_read_url, None, secret=True, unset="`DATABASE_URL`",
            about="A replica that the web reads from. Writes and downloads go to `DATABASE_URL`, and so do all reads "
            "while the replica is away or more than 5 s behind.",
        ),
    ),
    "Files": (
        Setting(
            "UPLOADS_DIR", absolute_path, "/app/uploads",
            about="Absolute path of the directory with the uploaded PDFs; on S3, of their temporary files. convertq "
            "creates it at start.",
        ),
        Setting(
            "RESULTS_DIR", absolute_path, "/app/results",
            about="Absolute path of the directory with the XML results; on S3, of their temporary files. convertq "
            "creates it at start.",
        ),
        Setting(
            "RESULTS_MIN_FREE_MB", zero_or_more, "100",
            about="A host with less free space for results claims no jobs.",
        ),
        Setting(
            "MAX_UPLOAD_BYTES", whole_number(1, 2**40), "52428800",
            about="Larger files are refused with `TOO_LARGE`.",
        ),
    ),
    "Object storage": (
        Setting(
            "STORAGE_URL", parse_storage_url, None, unset="the directories above",
            about="`s3://BUCKET/PREFIX`: new PDFs and results go to this bucket of any S3-compatible storage. Needs "
            "`convertq[s3]`. Credentials come from the usual AWS chain: environment, shared file, instance role.",
        ),
        Setting(
            "STORAGE_READ_URL", parse_storage_url, None, unset="the directories above",
            about="Where files of older jobs may also be, while they move from one storage to another.",
        ),
        Setting(
            "S3_ENDPOINT_URL", endpoint_url, None, unset="AWS",
            about="`https://host:port` of a storage other than AWS; its buckets are then addressed by path.",
        ),
        Setting(
            "S3_REGION", region, None, unset="`AWS_REGION`, else us-east-1",
            about="The region of the bucket.",
        ),
        Setting(
            "S3_PRESIGNED_DOWNLOADS", switch, "0",
            about="1: a download is a redirect to the storage, by a URL that is valid for 5 minutes. 0: the web "
            "process passes the file on.",
        ),
        Setting(
            "S3_PUBLIC_ENDPOINT_URL", endpoint_url, None, unset="`S3_ENDPOINT_URL`",
            about="The address of the storage as browsers reach it, for those redirects.",
        ),
    ),
    "Worker pool": (
        Setting(
            "WORKER_CONCURRENCY", read_pool_size, "4",
            about="Number of worker processes; each converts one document at a time. `2..16`: a pool that grows from 2 "
            "to 16 while jobs wait for a worker, and shrinks after a minute without need. `worker run --concurrency` "
            "overrides it.",
        ),
        Setting(
            "WORKER_ENVIRONMENT", label, "dev",
            about="A label that appears in `convertq servers` and in every log line.",
        ),
        Setting(
            "WORKER_SHUTDOWN_GRACE_SEC", zero_or_more, "60",
            about="At shutdown, workers have this long to finish their jobs; then the jobs are requeued. 0: requeue at "
            "once.",
        ),
        Setting(
            "WORKER_MAX_JOBS", zero_or_more, "0",
            about="A worker process is replaced after this many jobs. 0: never.",
        ),
        Setting(
            "SCALE_TARGET_SEC", positive, "60",
            about="`convertq_wanted_workers` and `/api/admin/scale` give the number of workers that finish the queued "
            "jobs within this time.",
        ),
        Setting(
            "WORKER_POLL_INTERVAL_MS", positive, "1500",
            about="How often an idle worker looks for jobs when no notification arrives.",
        ),
        Setting(
            "WORKER_LEASE_TTL_SEC", positive, "600",
            about="A job whose lease was not extended for this long is reclaimed.",
        ),
        Setting(
            "WORKER_LEASE_EXTEND_SEC", positive, "30",
            about="How often a worker extends the lease of its job. Must be under a third of `WORKER_LEASE_TTL_SEC`.",
        ),
        Setting(
            "WORKER_HEARTBEAT_SEC", positive, "10",
            about="How often a supervisor records a heartbeat.",
        ),
        Setting(
            "WORKER_HEARTBEAT_TIMEOUT_SEC", positive, "40",
            about="A server without a heartbeat for this long is dead, and other workers reclaim its jobs.",
        ),
    ),
    "Owners": (
        Setting(
            "FAIR_SHARE", switch, "0",
            about="1: within a priority, owners take turns in proportion to their weight, instead of the oldest job "
            "first. The supervisor that starts last sets it for all hosts.",
        ),
        Setting(
            "OWNER_MAX_RUNNING", zero_or_more, "0",
            about="So many jobs of one owner may run at a time, on all hosts together. 0: no limit. The supervisor "
            "that starts last sets it for all hosts.",
        ),
    ),
    "Gateway": (
        Setting(
            "GATEWAYS_FILE", read_gateways_file, None, unset="one gateway, `default`",
            about="Absolute path of a TOML file that describes several gateways: see below. Workers, web and commands "
            "read it. `GATEWAY_URL` and `MAPPINGS_ALLOWED` are ignored then.",
        ),
        Setting(
            "GATEWAY_TIMEOUT_MS", positive, "180000",
            about="Limit for a whole call, from connecting to the last byte. Set it higher than the gateway's own "
            "limit, or documents are converted twice.",
        ),
        Setting(
            "GATEWAY_HEALTH_PATH", url_path, "/health",
            about="The path that the breaker's probe and `convertq doctor` request.",
        ),
        Setting(
            "MAPPINGS_ALLOWED", names, "pt_simon_invoice_v1",
            about="Allowed mappings, separated by commas. Jobs with another mapping fail without a gateway call. "
            "Ignored with `GATEWAYS_FILE`.",
        ),
    ),
    "Retries and circuit breaker": (
        Setting(
            "RETRY_MAX_ATTEMPTS", positive, "3",
            about="Attempts per job in total.",
        ),
        Setting(
            "RETRY_BASE_DELAY_MS", zero_or_more, "5000",
            about="The delay before a retry is base × 2^attempt + random(0…jitter), with attempt counted from 0.",
        ),
        Setting(
            "RETRY_JITTER_MAX_MS", zero_or_more, "5000",
            about="The largest random addition to a delay.",
        ),
        Setting(
            "CIRCUIT_WINDOW", positive, "20",
            about="The breaker considers this many of the latest gateway calls.",
        ),
        Setting(
            "CIRCUIT_FAIL_THRESHOLD", share, "0.5",
            about="The breaker opens when this share of those calls failed and at least half the window is filled.",
        ),
        Setting(
            "CIRCUIT_COOLDOWN_MS", zero_or_more, "30000",
            about="Time until an open breaker probes the gateway.",
        ),
    ),
    "Retention": (
        Setting(
            "RETENTION_UPLOADS_DAYS", days, "7",
            about="`convertq cleanup` removes the PDFs of finished jobs after this many days. 0: never.",
        ),
        Setting(
            "RETENTION_RESULTS_DAYS", days, "30",
            about="`convertq cleanup` removes results after this many days. 0: never.",
        ),
        Setting(
            "RETENTION_EVENTS_DAYS", days, "90",
            about="`convertq cleanup` removes the events of finished jobs after this many days. Most go with their "
            "whole partition, up to 16 days later; with less than 60 days, up to a week later. 0: never.",
        ),
        Setting(
            "RETENTION_JOBS_DAYS", days, "0",
            about="`convertq cleanup` removes finished jobs with all their rows and files after this many days; "
            "counters keep what they counted. 0: never.",
        ),
    ),
    "Logs and metrics": (
        Setting(
            "LOG_LEVEL", one_of("DEBUG", "INFO", "WARNING", "ERROR"), "INFO",
            about="`DEBUG`, `INFO`, `WARNING` or `ERROR`.",
        ),
        Setting(
            "LOG_FORMAT", one_of("json", "text"), None, unset="json; text on a terminal",
            about="`json` or `text`.",
        ),
        Setting(
            "LOG_FILE", absolute_path, None, unset="no copy",
            about="Absolute path of a copy of the log. Several hosts may share it, and logrotate may rename or "
            "truncate it.",
        ),
        Setting(
            "METRICS_PORT", port, None, unset="off",
            about="Port on which a supervisor serves Prometheus metrics, `/health` and `/ready`. Each pool of a host "
            "needs its own.",
        ),
        Setting(
            "METRICS_HOST", label, "127.0.0.1",
            about="Address on which a supervisor serves metrics.",
        ),
    ),
    "Web": (
        Setting(
            "WEB_HOST", label, "127.0.0.1",
            about="Address on which `convertq web run` listens. Under systemd, convertq-web.socket decides.",
        ),
        Setting(
            "WEB_PORT", port, "8000",
            about="Port on which `convertq web run` listens. Under systemd, convertq-web.socket decides.",
        ),
        Setting(
            "WEB_PROCESSES", whole_number(1, 100), "2",
            about="Number of web processes.",
        ),
        Setting(
            "SESSION_MAX_ACTIVE", positive, "100",
            about="Unfinished jobs that one visitor may have.",
        ),
        Setting(
            "ADMIN_TOKEN", token, None, secret=True, unset="no operator routes",
            about="The bearer token of operators; make one with `openssl rand -hex 32`.",
        ),
    ),
}  # fmt: skip
SETTINGS = tuple(setting for section in SECTIONS.values() for setting in section)
