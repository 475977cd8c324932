"""Random expressions of every type: total ones, which no row makes fail, so that it does not matter which rows are looked at."""

from tables import BARE, DECLARED, VALUES
from tree import Node, listed, text

#: Types that can be compared and sorted.
ORDERED = ["int4", "int8", "numeric", "float8", "text", "bool", "date", "timestamp", "timestamptz", "int4[]", "text[]", "interval"]
TYPES = ["int4", "int8", "numeric", "float8", "text", "bool", "date", "timestamp", "timestamptz", "jsonb", "int4[]", "text[]"]
#: What each type is made of: `<type>` is an expression of that type, `<same>` one integer expression each time.
TEMPLATES = {
    "int4": [
        "(<int4> + <int4>)", "(<int4> - <int4>)", "(<int4> * 3)", "(- <int4>)", "abs(<int4>)", "(<int4> % 7)", "(<int4> / 3)",
        "(<int4> / nullif(<int4>, 0))", "length(<text>)", "strpos(<text>, <text>)", "(<bool>)::int", "(<int2> + <int4>)",
        "extract(year FROM <date>)::int", "(<date> - <date>)", "cardinality(<int4[]>)", "array_length(<text[]>, 1)", "(<int4[]>)[1]",
        "array_position(<int4[]>, <int4>)", "(<int4> & 7)", "(<int4> | 1)", "num_nulls(<text>, <int4>)", "octet_length(<text>)",
        "CASE WHEN <same> <> 0 THEN 100 / <same> ELSE 0 END",
    ],
    "int8": ["<int4>::bigint", "(<int8> + <int8>)", "(<int8> + <int4>)", "(<int8> - <int8>)", "abs(<int8>)", "(<int8> % 11)", "(<int8> / 5)"],
    "numeric": [
        "(<numeric> + <numeric>)", "(<numeric> - <numeric>)", "(<numeric> * 2.5)", "round(<numeric>, 1)", "<int4>::numeric", "trunc(<numeric>)",
        "ceil(<numeric>)", "floor(<numeric>)", "(<numeric> / 4)", "abs(<numeric>)", "(<numeric> % 3)", "(<int8> * 1.5)", "<int8>::numeric",
        "extract(epoch FROM <timestamp>)", "extract(month FROM <date>)", "(<numeric> / nullif(<numeric>, 0))", "sign(<numeric>)",
        "mod(<numeric>, 4)", "<numeric>::numeric(12,1)",
    ],
    "float8": [
        "(<float8> + <float8>)", "(<float8> - <float8>)", "(<float8> * 0.5)", "<int4>::float8", "floor(<float8>)", "abs(<float8>)",
        "sqrt(abs(<float8>))", "(<float8> / 2)", "round(<float8>)", "<numeric>::float8", "(<float8> / nullif(<float8>, 0))",
    ],
    "text": [
        "(<text> || <text>)", "upper(<text>)", "lower(<text>)", "substr(<text>, 2, 2)", "left(<text>, 2)", "right(<text>, 1)", "<int4>::text",
        "<bool>::text", "<date>::text", "concat(<text>, <int4>)", "replace(<text>, 'a', 'b')", "reverse(<text>)", "lpad(<text>, 4, 'x')",
        "btrim(<text>)", "(<jsonb> ->> 'a')", "<jsonb>::text", "concat_ws('-', <text>, <text>, <int4>)", "(<text[]>)[1]", "<varchar>::text",
        "array_to_string(<int4[]>, ',')", "split_part(<text>, 'a', 1)", "initcap(<text>)", "repeat(<text>, 2)", "<numeric>::text",
        "<timestamp>::text", "translate(<text>, 'ab', 'x')", "(<text> || <int4>)", "to_char(<date>, 'YYYY-MM-DD')", "quote_literal(<text>)",
        "<int4[]>::text", "<float8>::text", "<interval>::text", "substring(<text> from 1 for 1)", "format('%s:%s', <text>, <int4>)",
    ],
    "varchar": ["<text>::varchar(3)", "(<varchar>)"],
    "int2": ["(<bool>)::int::int2"],
    "bool": [
        "(<bool> AND <bool>)", "(<bool> OR <bool>)", "(NOT <bool>)", "(<bool> IS TRUE)", "(<bool> IS NOT FALSE)", "(<bool> IS UNKNOWN)",
        "(<text> LIKE 'a%')", "(<text> NOT LIKE '%b')", "(<text> ILIKE '%A%')", "(<text> ~ '^a')", "(<text[]> @> ARRAY['a'])",
        "(<int4[]> && ARRAY[1, 2])", "(<int4> = ANY (<int4[]>))", "(<int4> <> ALL (<int4[]>))", "(<jsonb> ? 'a')", "(<jsonb> @> '{\"a\": 1}')",
        "starts_with(<text>, 'a')", "(<bool> = <bool>)", "(<bool> <> <bool>)", "((<int4>, <text>) = (<int4>, <text>))",
        "((<int4>, <int4>) < (<int4>, <int4>))", "((<int4>, <text>) IN ((1, 'a'), (<int4>, <text>)))", "(<jsonb> = <jsonb>)",
        "(<int4> < <numeric>)", "(<int8> >= <int4>)", "(<float8> > <numeric>)", "(<date> <= <timestamp>)", "(<varchar> = <text>)",
        "((<date>, <date>) OVERLAPS (<date>, <date>))", "(<int4> > <int2>)",
        "CASE WHEN <same> <> 0 THEN 10 / <same> > 1 ELSE false END", "(<same> <> 0 AND 10 / <same> > 1)",
    ],
    "date": ["(<date> + (<int4> % 100))", "<timestamp>::date", "date_trunc('month', <timestamp>)::date", "(<date> - 1)"],
    "timestamp": [
        "(<timestamp> + interval '1 day')", "<date>::timestamp", "date_trunc('hour', <timestamp>)", "(<timestamptz> AT TIME ZONE 'UTC')",
        "(<timestamp> + <interval>)", "(<date> + interval '1 hour')", "(<timestamp> - interval '1 month')",
    ],
    "timestamptz": [
        "(<timestamptz> + interval '1 hour')", "(<timestamp> AT TIME ZONE 'Europe/Berlin')", "date_trunc('day', <timestamptz>)",
        "<timestamp>::timestamptz", "<date>::timestamptz",
    ],
    "interval": ["(<timestamp> - <timestamp>)", "(interval '1 day' * (<int4> % 50))", "age(<timestamp>, <timestamp>)", "(<interval> + <interval>)"],
    "jsonb": [
        "jsonb_build_object('k', <int4>, 'v', <text>)", "to_jsonb(<int4>)", "(<jsonb> -> 'a')", "jsonb_build_array(<int4>, <text>)",
        "to_jsonb(<text>)", "(<jsonb> #> '{a,b}')", "jsonb_strip_nulls(<jsonb>)", "(<jsonb> -> 0)", "to_jsonb(<int4[]>)",
    ],
    "int4[]": [
        "ARRAY[<int4>, <int4>]", "(<int4[]> || <int4>)", "array_append(<int4[]>, <int4>)", "array_remove(<int4[]>, <int4>)",
        "(<int4[]> || <int4[]>)", "(<int4[]>)[1:2]", "array_replace(<int4[]>, 1, 5)",
    ],
    "text[]": ["ARRAY[<text>]", "string_to_array(<text>, 'a')", "(<text[]> || <text>)", "ARRAY[<text>, <text>]"],
}
#: Of every type.
GENERAL = [
    "coalesce(<T>, <T>)", "CASE WHEN <bool> THEN <T> ELSE <T> END", "CASE WHEN <bool> THEN <T> END", "nullif(<T>, <T>)",
    "CASE <int4> WHEN 1 THEN <T> WHEN 2 THEN <T> ELSE <T> END",
]
SORTABLE = ["greatest(<T>, <T>)", "least(<T>, <T>, <T>)"]
COMPARISONS = [
    "(<T> = <T>)", "(<T> <> <T>)", "(<T> < <T>)", "(<T> <= <T>)", "(<T> > <T>)", "(<T> >= <T>)", "(<T> IS NULL)", "(<T> IS NOT NULL)",
    "(<T> IS DISTINCT FROM <T>)", "(<T> IS NOT DISTINCT FROM <T>)", "(<T> BETWEEN <T> AND <T>)", "(<T> NOT BETWEEN SYMMETRIC <T> AND <T>)",
    "(<T> IN (<T>, <T>))", "(<T> NOT IN (<T>, <T>))",
]
#: Aggregates by the type of what they answer; those with ORDER BY take the same expression twice.
AGGREGATES = {
    "int8": ["count(*)", "count(<any>)", "count(DISTINCT <any>)", "sum(<int4>)", "sum(DISTINCT <int4>)"],
    "numeric": ["sum(<int8>)", "avg(<int4>)", "sum(<numeric>)", "avg(<numeric>)", "avg(DISTINCT <int8>)"],
    "float8": ["sum(<float8>)", "avg(<float8>)"],
    "bool": ["bool_and(<bool>)", "bool_or(<bool>)", "every(<bool>)"],
    "int4": ["bit_and(<int4>)", "bit_or(<int4>)"],
}
MIN_MAX = ["int4", "int8", "numeric", "float8", "text", "date", "timestamp", "timestamptz", "interval", "int4[]"]
SORTED_AGGREGATES = {
    "text": [("string_agg({}, ',' ORDER BY {})", "text"), ("string_agg(DISTINCT {}, '' ORDER BY {} DESC)", None)],
    "int4[]": [("array_agg({} ORDER BY {})", "int4"), ("array_agg({} ORDER BY {} DESC NULLS LAST)", "int4")],
    "text[]": [("array_agg({} ORDER BY {})", "text")],
    "jsonb": [("jsonb_agg({} ORDER BY {})", "int4"), ("jsonb_agg({} ORDER BY {} DESC)", "text")],
    "int4": [("percentile_disc(0.5) WITHIN GROUP (ORDER BY {})", "int4"), ("mode() WITHIN GROUP (ORDER BY {})", "int4")],
    "float8": [("percentile_cont(0.5) WITHIN GROUP (ORDER BY {})", "float8")],
}


def placed(template, give):
    """A node's parts of a template: `give` makes each `<type>`."""
    parts, rest = [], template
    while "<" in rest:
        head, _, tail = rest.partition("<")
        name, closed, after = tail.partition(">")
        if closed and (name in TEMPLATES or name in ("T", "any", "same")):
            parts += [head, give(name)]
            rest = after
        else:
            parts.append(head + "<")
            rest = tail
    return parts + [rest]


def constant(random, ty, nulls=8):
    """A constant; one of `nulls` is NULL."""
    value = "NULL" if random.randrange(nulls) == 0 else random.choice(VALUES[ty])
    if value != "NULL" and ty in BARE:
        return Node(ty, f"({value})" if value.startswith("-") else value)
    if value != "NULL" and random.randrange(2) and ty in ("date", "timestamp", "timestamptz", "interval"):
        return Node(ty, f"{ty} {value}")
    return Node(ty, f"CAST({value} AS {DECLARED[ty]})")


class Scope:
    """Columns that expressions may read: (sql, type), and the scope of the query around."""

    def __init__(self, columns, outer=None):
        self.columns = columns
        self.outer = outer
        #: Makes an aggregate of a type: within a grouped query.
        self.aggregate = None
        #: Makes a window call of a type.
        self.window = None


class Expressions:
    """Makes expressions over scopes; `subquery(types, scope, depth)` makes the queries within them."""

    def __init__(self, random, subquery):
        self.random = random
        self.subquery = subquery
        # Seeds with many of them ask what folds to NULL, and what still counts there.
        self.nulls = random.choice([8, 8, 8, 2])

    def leaf(self, ty, scope):
        random = self.random
        around, level = scope, 0
        while around.outer is not None and random.randrange(3) == 0:
            around, level = around.outer, level + 1
        columns = [sql for sql, found in around.columns if found == ty]
        if columns and random.randrange(6):
            return Node(ty, random.choice(columns))
        if level and scope.columns:
            return self.leaf(ty, Scope(scope.columns))
        compared = [column for column in around.columns if column[1] in ORDERED]
        if ty == "bool" and compared and random.randrange(8):
            sql, of = random.choice(compared)
            return Node(ty, f"({sql} {random.choice(['=', '<>', '<', '>='])} ", constant(random, of, self.nulls), ")")
        return constant(random, ty, self.nulls)

    def make(self, ty, scope, depth):
        """An expression of a type, at most so deep."""
        random = self.random
        if ty == "any":
            ty = random.choice(TYPES)
        if depth <= 0 or random.randrange(3) == 0:
            if scope.aggregate and random.randrange(2):
                found = scope.aggregate(ty)
                if found:
                    return found
            if scope.window and random.randrange(3) == 0:
                found = scope.window(ty)
                if found:
                    return found
            return self.leaf(ty, scope)
        if random.randrange(7) == 0 and depth >= 2:
            return self.of_subquery(ty, scope, depth)
        compared = ty == "bool" and random.randrange(2)
        if compared:
            of = random.choice(ORDERED)
            template = random.choice(COMPARISONS)
        else:
            of = ty
            choices = list(TEMPLATES.get(ty, []))
            if random.randrange(4) == 0 or not choices:
                choices = list(GENERAL) + (SORTABLE if ty in ORDERED else [])
            template = random.choice(choices)
        return Node(ty, *placed(template, self.giver(of, scope, depth - 1)))

    def giver(self, of, scope, depth):
        """Makes the parts of a template: `<T>` is an expression of type `of`, `<same>` an integer, the same each time."""
        same = []

        def give(name):
            if name != "same":
                return self.make(of if name == "T" else name, scope, depth)
            same.append(same[0].copy() if same else self.make("int4", scope, depth))
            return same[-1]

        return give

    def of_subquery(self, ty, scope, depth):
        random = self.random
        if ty == "bool" and random.randrange(4):
            kind = random.randrange(5)
            if kind == 0:
                query = self.subquery([random.choice(TYPES)], scope, depth - 1)
                return text("bool", random.choice(["(EXISTS ({}))", "(NOT EXISTS ({}))"]), query)
            of = random.choice(["int4", "int8", "text", "date", "numeric"])
            if kind == 1 and random.randrange(2):
                left = listed(", ", [self.make(of, scope, depth - 1), self.make("int4", scope, 0)])
                return text("bool", random.choice(["(({}) IN ({}))", "(({}) NOT IN ({}))"]), left, self.subquery([of, "int4"], scope, depth - 1))
            template = random.choice(["({} IN ({}))", "({} NOT IN ({}))", "({} = ANY ({}))", "({} < ALL ({}))", "({} >= ANY ({}))", "({} <> ALL ({}))"])
            return text("bool", template, self.make(of, scope, depth - 1), self.subquery([of], scope, depth - 1))
        if ty in ("int4[]", "text[]") and random.randrange(2):
            return text(ty, "ARRAY({} ORDER BY 1)", self.subquery([ty[:-2]], scope, depth - 1, bare=True))
        return text(ty, "({})", self.subquery([ty], scope, depth - 1, single=True))

    def aggregate(self, ty, scope, depth):
        """An aggregate that answers a type, over rows of a scope; `None` where there is none."""
        random = self.random
        choices = [(template, None) for template in AGGREGATES.get(ty, [])]
        if ty in MIN_MAX:
            choices += [("min(<T>)", None), ("max(<T>)", None)]
        choices += [entry for entry in SORTED_AGGREGATES.get(ty, []) if entry[1]]
        if not choices:
            return None
        template, of = random.choice(choices)
        if of:
            argument = self.make(of, scope, depth)
            node = text(ty, template, argument, argument.copy()) if template.count("{}") == 2 else text(ty, template, argument)
        else:
            node = Node(ty, *placed(template, self.giver(ty, scope, depth)))
        if random.randrange(4) == 0:
            node = Node(ty, node, " FILTER (WHERE ", self.make("bool", scope, depth), ")")
        return node
