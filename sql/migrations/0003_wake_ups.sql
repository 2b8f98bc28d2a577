-- Waking up: how a transaction that queues a job notifies a supervisor, and how a claim measures what it
-- reads.
--
-- A transaction that sends NOTIFY holds a lock of the whole server until its commit is on disk, so
-- transactions that notify commit one by one. Therefore a notification is sent only when a supervisor waits
-- for jobs, by one transaction at a time, and to one supervisor. A supervisor that waits holds advisory
-- locks of its session: they make no row versions, and they end with the session. Their first key is
-- waiting_key(); the second one is
--    0      held shared by every supervisor that waits, so that one test shows whether any supervisor waits;
--    1..64  the place of one supervisor, which listens on the channel of that place;
--   -1      held by the transaction that notifies, from the end of its work until it is committed.
CREATE FUNCTION {schema}.waiting_key() RETURNS integer LANGUAGE sql IMMUTABLE AS
$$ SELECT hashtext('convertq waiting {schema}') $$;

CREATE FUNCTION {schema}.waiting_channel(place integer) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT 'convertq_' || left(trim('"' FROM '{schema}'), 50) || '_' || place $$;

-- wake_servers notifies at most so many of the supervisors that wait, and returns how many it has notified.
-- The first eight are tried in a random order, so that the same supervisor is not always chosen. Each test
-- is one expression, because a cancelled statement must not leave a lock behind.
CREATE FUNCTION {schema}.wake_servers(at_most integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    key CONSTANT integer := {schema}.waiting_key();
    first CONSTANT integer := floor(random() * 8);
    place integer;
    woken integer := 0;
BEGIN
    FOR n IN 0..63 LOOP
        place := CASE WHEN n < 8 THEN 1 + (first + n) % 8 ELSE n + 1 END;
        CONTINUE WHEN pg_try_advisory_lock_shared(key, place) AND pg_advisory_unlock_shared(key, place);
        PERFORM pg_notify({schema}.waiting_channel(place), '');
        woken := woken + 1;
        EXIT WHEN woken = at_most;
    END LOOP;
    RETURN woken;
END $$;

-- start_waiting takes the first free place and listens on its channel. It returns null when no place is
-- free, or when this session has one already.
CREATE FUNCTION {schema}.start_waiting() RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    key CONSTANT integer := {schema}.waiting_key();
BEGIN
    FOR place IN 1..64 LOOP
        IF pg_try_advisory_lock(key, place) THEN
            PERFORM pg_advisory_lock_shared(key, 0);
            EXECUTE format('LISTEN %I', {schema}.waiting_channel(place));
            RETURN place;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE FUNCTION {schema}.stop_waiting(place integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    key CONSTANT integer := {schema}.waiting_key();
BEGIN
    PERFORM pg_advisory_unlock(key, place), pg_advisory_unlock_shared(key, 0);
    EXECUTE format('UNLISTEN %I', {schema}.waiting_channel(place));
END $$;

-- It is a function of its own so that the condition of announce_jobs is short.
CREATE FUNCTION {schema}.somebody_waits() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN NOT (pg_try_advisory_lock({schema}.waiting_key(), 0)
                AND pg_advisory_unlock({schema}.waiting_key(), 0));
END $$;

-- announce_jobs is the wake-up of a transaction that has queued something. Each of its events calls it when
-- the transaction ends, and the first call is enough for all. It is deferred, because a long transaction
-- that took the lock -1 earlier would keep all others from notifying. A transaction that finds the lock
-- taken does not notify: the supervisor that the other one wakes checks again 20 ms and 200 ms later, when
-- both are committed.
CREATE FUNCTION {schema}.announce_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('convertq.announced', true) IS DISTINCT FROM 'on'
       AND set_config('convertq.announced', 'on', true) = 'on'
       AND pg_try_advisory_xact_lock({schema}.waiting_key(), -1) THEN
        PERFORM {schema}.wake_servers(1);
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER announce_jobs AFTER INSERT ON {schema}.job_events
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.event_type = ANY ('{queued, retry, requeued, reclaimed}') AND {schema}.somebody_waits())
    EXECUTE FUNCTION {schema}.announce_jobs();


-- An index by its name, or null while an operator builds it again. It is declared IMMUTABLE so that it is
-- evaluated when a statement is planned and not with each claim. A plan is discarded when an index of its
-- table is created or dropped, so the answer is never an old one.
CREATE FUNCTION {schema}.index_called(name text) RETURNS regclass LANGUAGE sql IMMUTABLE AS
$$ SELECT to_regclass(name) $$;

-- How many entries of the claim's indexes this transaction has read, dead ones included: a claim returns
-- the difference. The time that a claim took would not do, because on a busy machine every claim is slow
-- sometimes.
CREATE FUNCTION {schema}.entries_read() RETURNS bigint LANGUAGE sql AS $$
    SELECT coalesce(pg_stat_get_xact_tuples_returned({schema}.index_called('{schema}.jobs_claimable')), 0)
         + coalesce(pg_stat_get_xact_tuples_returned(
               {schema}.index_called('{schema}.jobs_waiting_for_retry')), 0)
$$;
