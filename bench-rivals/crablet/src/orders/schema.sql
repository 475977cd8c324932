-- With dual writes only the events, which are never sent, and the stock are in PostgreSQL.
CREATE TABLE stock (sku bigint PRIMARY KEY, n bigint NOT NULL);
INSERT INTO stock SELECT sku, 1000000 FROM generate_series(0, 9999) AS sku;

CREATE TABLE outbox (
    position bigserial PRIMARY KEY,
    type text NOT NULL,
    tags text[] NOT NULL,
    data jsonb NOT NULL,
    sent boolean NOT NULL DEFAULT false,
    recorded_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX outbox_pending ON outbox (position) WHERE NOT sent;

CREATE TABLE orders (id text PRIMARY KEY, doc jsonb NOT NULL);
CREATE TABLE samples (client bigint, at_ms bigint, value double precision NOT NULL, PRIMARY KEY (client, at_ms));
CREATE TABLE board (id text PRIMARY KEY, cents bigint NOT NULL);
