"""Constants of several types in one place: both servers must find the same common type."""

from tree import Node

NUMBERS = ["NULL", "'1'", "'2.5'", "1", "2", "2.5", "3000000000", "1::smallint", "2::bigint", "1.5::real", "2.5::float8", "1.10::numeric(10,2)",
           "NULL::int", "NULL::numeric", "NULL::float8"]
MOMENTS = ["NULL", "'2024-01-31'", "date '2024-01-31'", "timestamp '2024-01-31 10:00'", "timestamptz '2024-01-31 10:00+00'", "NULL::date", "NULL::timestamp"]
TEXTS = ["NULL", "'a'", "'2'", "''", "'b'::text", "'c'::varchar(3)", "NULL::text", "upper('d')"]
OTHERS = ["NULL", "'[1]'", "'{1}'", "true", "'t'", "'[1]'::jsonb", "'{\"a\": 1}'::jsonb", "ARRAY[1]", "ARRAY[2.5]", "ARRAY[]::int[]", "NULL::jsonb"]
#: Not next to brackets, which PostgreSQL ignores in an interval.
SPANS = ["NULL", "'1 day'", "'90 minutes'", "interval '1 day'", "interval '2 hours'", "NULL::interval"]
POOLS = [NUMBERS, NUMBERS, NUMBERS, MOMENTS, TEXTS, OTHERS, SPANS]
SET_OPERATIONS = ["UNION", "UNION ALL", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT"]


class Mixed:
    def __init__(self, random):
        self.random = random
        self.width = random.randrange(1, 3)
        self.pools = [random.choice(POOLS) for _ in range(self.width)]

    def constant(self, column=0):
        # Now and then one that does not fit.
        pool = self.pools[column] if self.random.randrange(20) else self.random.choice(POOLS)
        return self.random.choice(pool)

    def row(self):
        return ", ".join(self.constant(column) for column in range(self.width))

    def branch(self, depth):
        random = self.random
        kind = random.randrange(8)
        if kind == 0 and depth:
            return f"({self.sets(depth - 1)})"
        if kind == 1:
            names = ", ".join(f"x{column}" for column in range(self.width))
            return f"SELECT {names} FROM ({self.values()}) AS v ({names})"
        if kind == 2:
            return self.values()
        if kind == 3:
            return "SELECT " + ", ".join(self.expression(column) for column in range(self.width))
        if kind == 4 and depth:
            return f"SELECT * FROM ({self.sets(depth - 1)}) AS s"
        return f"SELECT {self.row()}"

    def values(self):
        return "VALUES " + ", ".join(f"({self.row()})" for _ in range(self.random.randrange(1, 4)))

    def sets(self, depth):
        query = self.branch(depth)
        for _ in range(self.random.randrange(1, 4)):
            query += f" {self.random.choice(SET_OPERATIONS)} {self.branch(depth)}"
        return query

    def expression(self, column):
        """One that finds a common type of several constants."""
        some = [self.constant(column) for _ in range(self.random.randrange(2, 4))]
        first, second = some[0], some[1]
        condition = self.random.choice(["true", "false", "NULL", "1 = 1"])
        return self.random.choice([
            f"coalesce({', '.join(some)})",
            f"greatest({', '.join(some)})",
            f"least({', '.join(some)})",
            f"CASE WHEN {condition} THEN {first} ELSE {second} END",
            f"CASE WHEN {condition} THEN {first} WHEN 2 > 1 THEN {second} END",
            f"CASE {first} WHEN {second} THEN 1 ELSE 2.5 END",
            f"nullif({first}, {second})",
            f"ARRAY[{', '.join(some)}]",
            f"{first} IN ({', '.join(some[1:])})",
            f"{first} = ANY (ARRAY[{', '.join(some[1:])}])",
            f"{first} BETWEEN {second} AND {some[-1]}",
            f"{first} = {second}",
            f"{first} < {second}",
            f"({first}, {second}) = ({second}, {first})",
            f"{first} IS DISTINCT FROM {second}",
            f"(SELECT {first} UNION ALL SELECT {second} LIMIT 1)",
            f"lag({first}, 1, {second}) OVER ()",
        ])

    def joined(self):
        """A join of lists whose columns have other types."""
        random = self.random
        join = random.choice(["JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN"])
        left, right = self.values(), self.values()
        names = [", ".join(f"{letter}{column}" for column in range(self.width)) for letter in "xy"]
        if random.randrange(2):
            names = [names[0], names[0]]
            return f"SELECT * FROM ({left}) AS v ({names[0]}) {join} ({right}) AS w ({names[1]}) USING (x0)"
        return f"SELECT * FROM ({left}) AS v ({names[0]}) {join} ({right}) AS w ({names[1]}) ON x0 = y0"

    def listed(self):
        """A list with a condition on its columns, or grouped by them."""
        random = self.random
        names = ", ".join(f"x{column}" for column in range(self.width))
        other = self.constant()
        tail = random.choice([
            f"WHERE x0 = {other}", f"WHERE x0 IN ({other}, {self.constant()})", f"WHERE x0 IN (SELECT {other} UNION ALL SELECT {self.constant()})",
            f"WHERE x0 > ALL (SELECT {other})", f"WHERE x0 = ANY (ARRAY[{other}, {self.constant()}])", f"WHERE coalesce(x0, {other}) = {self.constant()}",
        ])
        what = random.choice([names, "count(*)", "max(x0)", "sum(x0)", f"coalesce(max(x0), {other})"])
        return f"SELECT {what} FROM ({self.values()}) AS v ({names}) {tail}"


def mixed(random):
    """A statement of constants; some have no common type."""
    parts = Mixed(random)
    kind = random.randrange(6)
    if kind < 3:
        sql = parts.sets(2)
    elif kind == 3:
        sql = "SELECT " + parts.expression(0)
    elif kind == 4:
        sql = parts.joined()
    else:
        sql = parts.listed()
    query = Node("query", sql)
    query.columns = [None]
    return query
