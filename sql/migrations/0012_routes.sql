-- supports code from: 6
--
-- Routes: several gateways, each with its own breaker, its own limit of simultaneous calls and its own jobs.
--
-- Code that knows one gateway works on, as long as no server declares another one. `only_row` stays for it.
--
-- These locks come first, because the rest must not wait while it holds the first of them.
LOCK TABLE {schema}.circuit_breaker, {schema}.servers IN ACCESS EXCLUSIVE MODE;

-- What each supervisor reads from its configuration: its gateways, as a JSON array of objects (name,
-- mappings, max_calls), and a digest of everything that its file says, by which `doctor` finds files that
-- differ.
ALTER TABLE {schema}.servers
    ADD COLUMN gateways jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN gateways_digest text NOT NULL DEFAULT '';

-- One row per gateway. A row is never removed, and that of `default` is always there.
ALTER TABLE {schema}.circuit_breaker
    DROP CONSTRAINT circuit_breaker_pkey,
    ADD COLUMN gateway text NOT NULL DEFAULT 'default' PRIMARY KEY,
    ADD COLUMN max_calls integer,  -- the smallest limit that an active server declares; null: no limit
    ADD CONSTRAINT gateway_has_a_short_name CHECK (gateway ~ '^[a-z0-9_-]{1,32}$'),
    ADD CONSTRAINT a_limit_allows_a_call CHECK (max_calls > 0);

-- Which gateway converts a mapping, as the active server that started last says. The mapping '*' stands for
-- every mapping that no server has declared: a worker refuses its jobs. A mapping that no server declares any
-- more keeps its row, so that its jobs wait while the only host that knows it is started again.
CREATE TABLE {schema}.mapping_routes (
    mapping     text    PRIMARY KEY,
    gateway     text    NOT NULL,
    changed_by  xid8    NOT NULL DEFAULT pg_current_xact_id(),  -- the transaction that wrote `gateway`
    jobs_follow boolean NOT NULL DEFAULT true  -- false: queued jobs may have the route of the gateway before
);

CREATE FUNCTION {schema}.route_of(its_mapping text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT gateway FROM {schema}.mapping_routes WHERE mapping = its_mapping),
                    (SELECT gateway FROM {schema}.mapping_routes WHERE mapping = '*'), 'default')
$$;


-- One row for each call that a limited gateway may be given at a time. A worker holds one of them from before
-- its claim until its connection to the gateway is closed, and SKIP LOCKED lets simultaneous claims take
-- different rows. Gateways without a limit have none.
CREATE TABLE {schema}.gateway_slots (
    gateway  text        NOT NULL,
    number   integer     NOT NULL,
    holder   text,       -- the worker; null: free
    taken_at timestamptz,

    PRIMARY KEY (gateway, number)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- A server that has ended holds no slot, whichever statement records its end. A waiting worker may take it.
CREATE FUNCTION {schema}.free_slots_of_server() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.gateway_slots SET holder = NULL, taken_at = NULL
     WHERE left(holder, length(NEW.id) + 1) = NEW.id || '/';
    IF FOUND AND {schema}.somebody_waits() THEN
        PERFORM {schema}.wake_servers(2);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER free_slots_of_server AFTER UPDATE OF status ON {schema}.servers
    FOR EACH ROW WHEN (NEW.status IN ('stopped', 'dead') AND NEW.status <> OLD.status)
    EXECUTE FUNCTION {schema}.free_slots_of_server();


-- peek_route returns the key of the first job of a route that a claim from this position would find, and what
-- it has read for it. Its order is that of claim_order.sql. The plan is generic, because PostgreSQL would
-- otherwise plan the statement again for each call.
CREATE FUNCTION {schema}.peek_route(
    its_route text, after_priority bigint, after_turn bigint, after_created_at timestamptz, after_id uuid,
    excluded text[],
    OUT first_priority bigint, OUT first_turn bigint, OUT first_created_at timestamptz, OUT first_id uuid,
    OUT claimable_since timestamptz, OUT entries bigint, OUT seconds double precision)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    read_before CONSTANT bigint := {schema}.entries_read();
    began CONSTANT timestamptz := clock_timestamp();
BEGIN
    SELECT -priority::bigint, turn, created_at, id, updated_at
      INTO first_priority, first_turn, first_created_at, first_id, claimable_since
      FROM {schema}.jobs
     WHERE status = 'queued' AND retry_after IS NULL AND route = its_route
       AND coalesce(mapping <> ALL (excluded), true)
       AND (-priority::bigint, turn, created_at, id)
           >= (after_priority, after_turn, after_created_at, after_id)
     ORDER BY -priority::bigint, turn, created_at, id LIMIT 1;
    entries := {schema}.entries_read() - read_before;
    seconds := extract(epoch FROM clock_timestamp() - began);
END $$;
