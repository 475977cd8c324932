-- Events as go-crablet keeps them: ordered by (transaction, position), found by a GIN index over their tags.
CREATE TABLE events (
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    position bigserial PRIMARY KEY,
    type varchar(64) NOT NULL,
    tags text[] NOT NULL,
    data json NOT NULL,
    occurred_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX events_order ON events (transaction_id, position);
CREATE INDEX events_tags ON events USING gin (tags);
CREATE INDEX events_type ON events (type);

CREATE FUNCTION put_events(of_types text[], of_tags text[], of_data text[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO events (type, tags, data)
    SELECT one.type, one.tags::text[], one.data::json
    FROM unnest(of_types, of_tags, of_data) AS one (type, tags, data);
$$;

-- Only transactions older than every one that is open are looked at, and all items of a condition arrive as one list of
-- types and one list of tags. Both are go-crablet's: a condition can be missed, and a condition of several items means
-- something else.
CREATE FUNCTION put_events_if(of_types text[], of_tags text[], of_data text[], no_types text[], no_tags text[])
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    found bigint;
BEGIN
    SELECT count(*) INTO found FROM events
    WHERE (cardinality(no_types) = 0 OR type = ANY (no_types))
      AND (cardinality(no_tags) = 0 OR tags @> no_tags)
      AND transaction_id < pg_snapshot_xmin(pg_current_snapshot());
    IF found > 0 THEN
        RETURN false;
    END IF;
    PERFORM put_events(of_types, of_tags, of_data);
    RETURN true;
END;
$$;
