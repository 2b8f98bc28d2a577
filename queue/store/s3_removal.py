"""Deleting objects in bulk, by their locations."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from convertq.queue.store.protocol import Removed
from convertq.queue.store.s3_bucket import Bucket
from convertq.queue.store.s3_keys import Keys

LIST_THREADS = 8
NOT_OURS = Removed(error="not a location of this store")


def remove_objects(bucket: Bucket, keys: Keys, locations: Sequence[str], *, dry_run: bool) -> dict[str, Removed]:
    """A location that ends with a slash names all results of a job, one with `?uploadId=` an unfinished upload."""
    removed = {location: _refuse(keys, location) for location in locations}
    ours = [location for location, outcome in removed.items() if not outcome.error]
    if dry_run:
        return removed
    try:
        return removed | _remove(bucket, keys, ours)
    except OSError as error:
        return removed | dict.fromkeys(ours, Removed(error=error.strerror or str(error)))


def _refuse(keys: Keys, location: str) -> Removed:
    key = (keys.key_of(location) or "").partition("?")[0]
    is_folder = key.startswith(keys.results) and key.endswith("/")
    is_ours = is_folder or keys.read_source(key) or keys.read_result(key) or keys.read_probe(key)
    return Removed() if is_ours else NOT_OURS


def _remove(bucket: Bucket, keys: Keys, locations: Sequence[str]) -> dict[str, Removed]:
    objects = _objects_of(bucket, keys, [location for location in locations if "?" not in location])
    errors = bucket.delete_all([key for each in objects.values() for key in each])
    removed = {}
    for location, each in objects.items():
        error = next((errors[key] for key in each if key in errors), None)
        removed[location] = Removed(error=error)
    for location in locations:
        key, mark, upload_id = (keys.key_of(location) or "").partition("?uploadId=")
        if mark:
            bucket.abort_upload(key, upload_id)
            removed[location] = Removed()
    return removed


def _objects_of(bucket: Bucket, keys: Keys, locations: Sequence[str]) -> dict[str, list[str]]:
    """The keys of each location. Results of a job are listed, several jobs at a time."""
    wanted = {location: keys.key_of(location) or "" for location in locations}
    folders = [location for location, key in wanted.items() if key.endswith("/")]
    found = {location: [key] for location, key in wanted.items()}
    if folders:
        with ThreadPoolExecutor(LIST_THREADS) as threads:
            listed = threads.map(lambda location: _results_in(bucket, keys, wanted[location]), folders)
            found |= dict(zip(folders, listed, strict=True))
    return found


def _results_in(bucket: Bucket, keys: Keys, folder: str) -> list[str]:
    return [each.key for each in bucket.list_objects(folder) if keys.read_result(each.key)]
