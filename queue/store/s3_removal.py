"""Deleting objects in bulk, by their locations."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from convertq.queue.store.protocol import Removed
from convertq.queue.store.s3_bucket import Bucket
from convertq.queue.store.s3_keys import Keys

REQUEST_THREADS = 8
NOT_OURS = Removed(error="not a location of this store")


def remove_objects(bucket: Bucket, keys: Keys, locations: Sequence[str], *, dry_run: bool) -> dict[str, Removed]:
    """A location that ends with a slash names all results of a job, one with `?uploadId=` an unfinished upload."""
    removed = {location: _refuse(keys, location) for location in locations}
    ours = [location for location, outcome in removed.items() if not outcome.error]
    try:
        return removed | _remove(bucket, keys, ours, dry_run=dry_run)
    except OSError as error:
        return removed | dict.fromkeys(ours, Removed(error=error.strerror or str(error)))


def _refuse(keys: Keys, location: str) -> Removed:
    key = (keys.key_of(location) or "").partition("?")[0]
    is_folder = key.startswith(keys.results) and key.endswith("/")
    is_ours = is_folder or keys.read_source(key) or keys.read_result(key) or keys.read_probe(key)
    return Removed() if is_ours else NOT_OURS


def _remove(bucket: Bucket, keys: Keys, locations: Sequence[str], *, dry_run: bool) -> dict[str, Removed]:
    objects = _objects_of(bucket, keys, [location for location in locations if "?" not in location])
    errors = {} if dry_run else bucket.delete_all([key for each in objects.values() for key in each])
    removed = {}
    for location, sizes in objects.items():
        error = next((errors[key] for key in sizes if key in errors), None)
        removed[location] = Removed(sum(size for key, size in sizes.items() if key not in errors), error)
    for location in locations:
        key, mark, upload_id = (keys.key_of(location) or "").partition("?uploadId=")
        if mark:
            if not dry_run:
                bucket.abort_upload(key, upload_id)
            removed[location] = Removed()
    return removed


def _objects_of(bucket: Bucket, keys: Keys, locations: Sequence[str]) -> dict[str, dict[str, int]]:
    """The keys of each location, with their sizes, several locations at a time. A missing object has no size."""

    def find(location: str) -> dict[str, int]:
        key = keys.key_of(location) or ""
        if key.endswith("/"):
            return {each.key: each.size for each in bucket.list_objects(key) if keys.read_result(each.key)}
        found = bucket.head(key)
        return {key: found.size} if found else {}

    if len(locations) < 2:
        return {location: find(location) for location in locations}
    with ThreadPoolExecutor(REQUEST_THREADS) as threads:
        return dict(zip(locations, threads.map(find, locations), strict=True))
