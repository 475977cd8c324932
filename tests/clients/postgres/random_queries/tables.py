"""Random tables: columns of every type under names that tables share, keys, indexes, rows with NULLs."""

#: Name of a column: its type as the grammar calls it, and as it is declared.
COLUMNS = {
    "i": ("int4", "int"),
    "j": ("int4", "int"),
    "s": ("int2", "smallint"),
    "b": ("int8", "bigint"),
    "n": ("numeric", "numeric(10,2)"),
    "m": ("numeric", "numeric"),
    "f": ("float8", "float8"),
    "t": ("text", "text"),
    "u": ("text", "text"),
    "v": ("varchar", "varchar(10)"),
    "o": ("bool", "boolean"),
    "d": ("date", "date"),
    "ts": ("timestamp", "timestamp"),
    "tz": ("timestamptz", "timestamptz"),
    "js": ("jsonb", "jsonb"),
    "ia": ("int4[]", "int[]"),
    "ta": ("text[]", "text[]"),
}

#: Literals of each type. Sums of floats are exact; texts have upper and lower case, blanks, patterns.
VALUES = {
    "int2": ["0", "1", "2", "-3", "7"],
    "int4": ["0", "1", "2", "3", "-1", "5", "10", "-20", "42", "100"],
    "int8": ["0", "1", "2", "-7", "1000", "9000000000"],
    "numeric": ["0", "1", "1.50", "2.25", "-3.10", "10", "0.01", "100.00"],
    "float8": ["0", "1", "0.5", "-2.25", "3.75", "1000", "-0.5"],
    "text": ["''", "'a'", "'ab'", "'b'", "'B'", "'a_%'", "'zz top'", "'0'", "'Äß'", "'10'"],
    "varchar": ["''", "'a'", "'ab'", "'B'", "'c '"],
    "bool": ["true", "true", "true", "false"],
    "date": ["'2020-01-31'", "'2020-02-29'", "'2021-12-31'", "'1999-01-01'"],
    "timestamp": ["'2020-01-31 12:00:00'", "'2020-02-29 23:59:59.5'", "'1999-01-01 00:00:00'", "'2021-06-15 06:30:00'"],
    "timestamptz": ["'2020-03-29 01:30:00+00'", "'2020-10-25 00:30:00+00'", "'1999-01-01 00:00:00+02'"],
    "interval": ["'1 day'", "'2 hours 30 minutes'", "'-1 month'", "'1 year 2 days'", "'0'"],
    "jsonb": ["'{}'", "'{\"a\": 1, \"b\": \"x\"}'", "'{\"a\": null}'", "'[1, 2, \"a\"]'", "'\"a\"'", "'5'", "'null'", "'{\"a\": {\"b\": [true]}}'"],
    "int4[]": ["'{}'", "'{1}'", "'{1,2,3}'", "'{2,NULL}'", "'{-1,10,10}'"],
    "text[]": ["'{}'", "'{a}'", "'{a,ab,NULL}'", "'{B,\"\"}'"],
}
DECLARED = {ty: declared for ty, declared in COLUMNS.values()} | {"numeric": "numeric", "interval": "interval", "varchar": "varchar"}
#: Types that literals take without a cast.
BARE = {"int4", "numeric", "text", "bool"}


class Table:
    def __init__(self, name, columns, key, rows):
        self.name = name
        #: (name, type) in order.
        self.columns = columns
        #: Columns of the primary key; empty without one.
        self.key = key
        #: Literals.
        self.rows = rows
        self.indexes = []

    def statements(self):
        """What makes the table and fills it."""
        declared = [f"{name} {COLUMNS[name][1] if name in COLUMNS else 'int'}" for name, _ in self.columns]
        if self.key:
            declared.append(f"PRIMARY KEY ({', '.join(self.key)})")
        yield f"CREATE TABLE {self.name} ({', '.join(declared)})"
        for start in range(0, len(self.rows), 1000):
            rows = ", ".join(f"({', '.join(row)})" for row in self.rows[start : start + 1000])
            yield f"INSERT INTO {self.name} VALUES {rows}"
        yield from self.indexes


def literal(random, ty, nulls=6):
    """A value of a column."""
    return "NULL" if random.randrange(nulls) == 0 else random.choice(VALUES[ty])


def table(random, name, many):
    chosen = sorted(random.sample(list(COLUMNS), random.randrange(2, 8)), key=list(COLUMNS).index)
    columns = [("id", "int4")] + [(column, COLUMNS[column][0]) for column in chosen]
    kind = random.randrange(4)
    rows, seen = [], set()
    for number in range(many):
        row = [str(number * 3 % (many + 7) if many > 100 else number)] + [literal(random, ty) for _, ty in columns[1:]]
        rows.append(row)
    key = ["id"]
    if kind == 0:
        key = []
    elif kind == 1 and columns[1][1] in ("int4", "int8", "text", "date"):
        # A key of two columns, of which the first repeats.
        key = [columns[1][0], "id"]
        for row in rows:
            if row[1] == "NULL":
                row[1] = VALUES[columns[1][1]][0]
    if key:
        unique = []
        for row in rows:
            value = tuple(row[[column for column, _ in columns].index(part)] for part in key)
            if value not in seen:
                seen.add(value)
                unique.append(row)
        rows = unique
    made = Table(name, columns, key, rows)
    for number in range(random.randrange(3)):
        indexable = [column for column, ty in columns if ty not in ("jsonb", "int4[]", "text[]")]
        parts = random.sample(indexable, min(len(indexable), random.randrange(1, 3)))
        made.indexes.append(f"CREATE INDEX {name}_x{number} ON {name} ({', '.join(parts)})")
    return made


def tables(random):
    """Two to four tables, one of them at times larger than where a query changes its executor."""
    made = []
    for number in range(random.randrange(2, 5)):
        many = random.choice([0, 3, 8, 8, 15, 15, 25, 25])
        if number == 0 and random.randrange(12) == 0:
            many = 8300
        made.append(table(random, "abcd"[number], many))
    return made
