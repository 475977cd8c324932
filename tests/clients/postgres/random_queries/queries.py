"""Random queries whose answers are fixed but for the order of rows: LIMIT and windows over rows only where an order is total."""

from expressions import TYPES, Expressions, Scope, constant
from tree import Node, listed, optional, text

#: Types of columns that queries within FROM answer.
DERIVED = ["int4", "int4", "int8", "numeric", "text", "text", "bool", "date", "float8", "timestamp", "int4[]", "jsonb"]
WINDOWS = {
    "int8": ["row_number()", "rank()", "dense_rank()", "count(*)", "ntile(3)"],
    "float8": ["percent_rank()", "cume_dist()"],
}
#: Windows whose answer does not rest on the order of peers.
PEERS = {"rank()", "dense_rank()", "count(*)", "percent_rank()", "cume_dist()"}
FRAMES = [
    "", "", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    " ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING", " RANGE UNBOUNDED PRECEDING", " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", " ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
]


class Relation:
    """An item of FROM: its alias, its columns (name, type), and the columns that tell its rows apart, if any do."""

    def __init__(self, alias, columns, key=None):
        self.alias = alias
        self.columns = columns
        self.key = key

    def qualified(self):
        return [(f"{self.alias}.{name}", ty) for name, ty in self.columns]


class Queries:
    def __init__(self, random, tables):
        self.random = random
        self.tables = tables
        self.expressions = Expressions(random, self.subquery)
        self.number = 0
        #: Queries of WITH in reach: (name, columns).
        self.named = []

    def fresh(self, letter):
        self.number += 1
        return f"{letter}{self.number}"

    def statement(self):
        """A whole query, with or without WITH, ORDER BY and LIMIT."""
        random = self.random
        self.number, self.named = 0, []
        with_list = []
        for _ in range(random.choice([0, 0, 0, 1, 1, 2])):
            with_list.append(self.common())
        known = [ty for table in self.tables for _, ty in table.columns if ty in TYPES]
        types = [random.choice(known if random.randrange(3) else TYPES) for _ in range(random.randrange(1, 5))]
        star = random.randrange(15) == 0
        query = self.star() if star else self.query(types, None, random.choice([1, 2, 2, 3]))
        types = query.columns
        parts = []
        if with_list:
            # Names that nothing reads any more are dropped one by one.
            recursive = "RECURSIVE " if any(is_recursive for _, is_recursive in with_list) else ""
            parts.append(optional(f"WITH {recursive}", listed(", ", [item for item, _ in with_list]), " "))
        parts.append(query)
        if types and random.randrange(3) == 0:
            parts.append(self.ordered(types))
        node = Node("query", *parts)
        node.columns = types
        return node

    def star(self):
        """SELECT of all columns that FROM has, in its order."""
        source, relations = self.froms(None, 1)
        scope = Scope([column for relation in relations for column in relation.qualified()])
        list_ = self.random.choice(["*", "*", f"{self.random.choice(relations).alias}.*, 1"])
        where = optional(" WHERE ", self.expressions.make("bool", scope, 2))
        return Node("query", f"SELECT {list_} FROM ", source, where)

    def ordered(self, types, limited=None):
        """ORDER BY over all columns, by number, and perhaps LIMIT."""
        random = self.random
        if "jsonb" in types:
            # Our order of jsonb is that of its text, as docs/sql.md says.
            return optional("")
        places = list(range(1, len(types) + 1))
        random.shuffle(places)
        item = lambda place: f"{place}{random.choice(['', '', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'])}"
        order = " ORDER BY " + ", ".join(item(place) for place in places)
        limited = random.randrange(2) if limited is None else limited
        if not limited:
            return optional(order)
        limit = random.choice([" LIMIT 3", " LIMIT 10", " LIMIT 2 OFFSET 1", " OFFSET 2", " FETCH FIRST 4 ROWS ONLY", " LIMIT 0"])
        return optional(order, optional(limit))

    def common(self):
        """A query of WITH, and whether it is recursive."""
        random = self.random
        name = self.fresh("w")
        if random.randrange(5) == 0:
            node = self.recursive(name)
            self.named.append((name, [("c1", "int4"), ("c2", "text")]))
            return node, True
        types = [random.choice(DERIVED) for _ in range(random.randrange(1, 4))]
        query = self.query(types, None, 1)
        columns = [(f"c{place}", ty) for place, ty in enumerate(query.columns, 1)]
        head = f"{name} ({', '.join(column for column, _ in columns)}) AS {random.choice(['', '', '', 'MATERIALIZED ', 'NOT MATERIALIZED '])}("
        self.named.append((name, columns))
        return Node("item", head, query, ")"), False

    def recursive(self, name):
        random = self.random
        scope = Scope([(f"{name}.c1", "int4"), (f"{name}.c2", "text")])
        step = self.expressions.make("text", scope, 1)
        union = random.choice(["UNION ALL", "UNION"])
        table = random.choice(self.tables)
        texts = [column for column, ty in table.columns if ty == "text"]
        base = random.choice(["SELECT 1, 'x'", f"SELECT id % 3, {texts[0] if texts else repr('t')} FROM {table.name}"])
        joined = random.choice(["", "", f" JOIN {table.name} ON {table.name}.id = {name}.c1"])
        text_of = text("text", "left({}, 8)", step)
        return Node("item", f"{name} (c1, c2) AS ({base} {union} SELECT {name}.c1 + 1, ", text_of, f" FROM {name}{joined} WHERE {name}.c1 < 4)")

    def subquery(self, types, scope, depth, single=False, bare=False):
        """A query in an expression. `single`: of one row at most; `bare`: an ORDER BY will come after it."""
        random = self.random
        if not single:
            return self.select(types, scope, depth, plain=bare)
        if random.randrange(3) and types[0] not in ("jsonb", "text[]"):
            query = self.select(types, scope, depth, grouped="one")
            if query.columns == types and query.kind == "query":
                return query
        inner = self.select(types, scope, depth, plain=True)
        way = random.choice(["", " DESC"])
        if types == ["jsonb"]:
            alias = self.fresh("q")
            node = Node("query", f"SELECT {alias}.x FROM (", inner, f") AS {alias} (x) ORDER BY {alias}.x::text{way} LIMIT 1")
        else:
            node = Node("query", inner, " ORDER BY 1", way, " LIMIT 1")
        node.columns = types
        return node

    def query(self, types, scope, depth):
        """A SELECT, VALUES, or a set operation over these types."""
        random = self.random
        kind = random.randrange(12)
        if kind == 0 and depth > 0:
            left, right = self.query(types, scope, depth - 1), self.query(types, scope, depth - 1)
            op = random.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "UNION ALL", "INTERSECT ALL", "EXCEPT ALL"])
            node = Node("query", "(", left, f") {op} (", right, ")")
        elif kind == 1:
            row = lambda: Node("item", "(", listed(", ", [constant(random, ty) for ty in types]), ")")
            node = Node("query", "VALUES ", listed(", ", [row() for _ in range(random.randrange(1, 4))]))
        else:
            return self.select(types, scope, depth)
        node.columns = types
        return node

    # ---- FROM ----

    def relation(self, scope, depth, lateral):
        """A table, a query of WITH, a derived table, a function or VALUES; its node and its Relation."""
        random = self.random
        kind = random.randrange(14)
        alias = self.fresh("q")
        if kind == 0 and depth > 0:
            types = [random.choice(DERIVED) for _ in range(random.randrange(1, 4))]
            is_lateral = lateral is not None and random.randrange(2)
            query = self.query(types, lateral if is_lateral else scope, depth - 1)
            columns = [(f"x{place}", ty) for place, ty in enumerate(query.columns, 1)]
            names = ", ".join(name for name, _ in columns)
            limited = self.ordered(types) if random.randrange(3) == 0 else ""
            head = "LATERAL (" if is_lateral else "("
            return Node("from", head, query, limited, f") AS {alias} ({names})"), Relation(alias, columns)
        if kind == 1:
            call = random.choice(["generate_series(1, 3)", "generate_series(2, -1, -2)", "unnest(ARRAY[1, 2, NULL, 2])"])
            return Node("from", f"{call} AS {alias} (x1)"), Relation(alias, [("x1", "int4")])
        if kind == 2 and lateral is not None and lateral.columns:
            arrays = [sql for sql, ty in lateral.columns if ty == "int4[]"]
            numbers = [sql for sql, ty in lateral.columns if ty == "int4"]
            if arrays:
                return Node("from", f"unnest({random.choice(arrays)}) AS {alias} (x1)"), Relation(alias, [("x1", "int4")])
            if numbers:
                call = f"generate_series(1, {random.choice(numbers)} % 4)"
                return Node("from", f"{call} AS {alias} (x1)"), Relation(alias, [("x1", "int4")])
        if kind == 3:
            types = [random.choice(DERIVED) for _ in range(random.randrange(1, 3))]
            row = lambda: Node("item", "(", listed(", ", [constant(random, ty) for ty in types]), ")")
            rows = listed(", ", [row() for _ in range(random.randrange(1, 4))])
            columns = [(f"x{place}", ty) for place, ty in enumerate(types, 1)]
            names = ", ".join(name for name, _ in columns)
            return Node("from", "(VALUES ", rows, f") AS {alias} ({names})"), Relation(alias, columns)
        if self.named and random.randrange(2):
            name, columns = random.choice(self.named)
            return Node("from", f"{name} AS {alias}"), Relation(alias, columns)
        table = random.choice(self.tables)
        return Node("from", f"{table.name} AS {alias}"), Relation(alias, table.columns, table.key or None)

    def condition(self, left, right, scope, depth):
        """ON: mostly an equality of two columns of one type."""
        random = self.random
        pairs = [(l, r) for l, lt in left for r, rt in right if lt == rt and lt != "jsonb"]
        if pairs and random.randrange(5):
            parts = [f"{l} = {r}" for l, r in random.sample(pairs, min(len(pairs), random.choice([1, 1, 1, 2])))]
            node = Node("bool", " AND ".join(parts))
            if random.randrange(4) == 0:
                return Node("bool", node, " AND ", self.expressions.make("bool", scope, depth))
            return node
        return self.expressions.make("bool", scope, depth)

    def froms(self, scope, depth):
        """FROM: its node, and the relations in it."""
        random = self.random
        node, first = self.relation(scope, depth, None)
        relations = [first]
        hidden = set()
        for _ in range(random.choice([0, 0, 0, 1, 1, 1, 2, 2, 3])):
            columns = [column for relation in relations for column in relation.qualified()]
            kind = random.choice(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", ",", "USING", "NATURAL"])
            may_see = kind in ("JOIN", "LEFT JOIN", "CROSS JOIN")
            right, relation = self.relation(scope, depth, Scope(columns, scope) if may_see else None)
            both = Scope(columns + relation.qualified(), scope)
            if kind == ",":
                kind = "CROSS JOIN"
            if kind in ("USING", "NATURAL"):
                word = random.choice(["JOIN", "LEFT JOIN", "JOIN", "RIGHT JOIN", "FULL JOIN"])
                names = [name for r in relations for name, _ in r.columns]
                right_names = dict(relation.columns)
                left_types = {name: ty for r in relations for name, ty in r.columns}
                # A name that the left has once, and that means the same to both.
                shared = [n for n in right_names if names.count(n) == 1 and left_types[n] == right_names[n]]
                clash = [n for n in right_names if names.count(n) > 1 or n in left_types and left_types[n] != right_names[n]]
                if kind == "NATURAL" and shared and not clash:
                    node = Node("from", node, f" NATURAL {word} ", right)
                elif shared:
                    chosen = random.sample(shared, min(len(shared), random.choice([1, 1, 2])))
                    node = Node("from", node, f" {word} ", right, f" USING ({', '.join(chosen)})")
                else:
                    node = Node("from", node, " CROSS JOIN ", right)
            elif kind == "CROSS JOIN":
                node = Node("from", node, " CROSS JOIN ", right)
            elif kind == "FULL JOIN":
                # PostgreSQL needs an equality that it can merge or hash.
                pairs = [(l, r) for l, lt in columns for r, rt in relation.qualified() if lt == rt and lt in ("int4", "text", "int8", "date")]
                if not pairs:
                    node = Node("from", node, " LEFT JOIN ", right, " ON ", self.expressions.make("bool", both, 1))
                else:
                    l, r = random.choice(pairs)
                    node = Node("from", node, " FULL JOIN ", right, f" ON {l} = {r}")
            else:
                node = Node("from", node, f" {kind} ", right, " ON ", self.condition(columns, relation.qualified(), both, 1))
            relations.append(relation)
        if random.randrange(8) == 0:
            extra, relation = self.relation(scope, depth, None)
            node = Node("from", node, ", ", extra)
            relations.append(relation)
        return node, relations

    # ---- SELECT ----

    def select(self, types, outer, depth, grouped=None, plain=False):
        random = self.random
        if random.randrange(25) == 0 and grouped is None:
            scope = Scope([], outer)
            items = [self.expressions.make(ty, scope, depth) for ty in types]
            return self.built(types, items, "", None, None, "")
        node, relations = self.froms(outer, depth)
        columns = [column for relation in relations for column in relation.qualified()]
        scope = Scope(columns, outer)
        where = None
        if random.randrange(3):
            where = self.expressions.make("bool", scope, depth)
        joined = self.joined(columns, outer) if random.randrange(3) == 0 else None
        if joined is not None:
            where = joined if where is None else text("bool", "({} AND {})", joined, where)
        if grouped is None and not plain and random.randrange(4 if joined is None else 2) == 0:
            grouped = random.choice(["one", "by", "by", "by"])
        if grouped:
            return self.grouped(types, node, scope, where, depth, grouped)
        keys = None
        if all(relation.key for relation in relations):
            keys = [f"{relation.alias}.{part}" for relation in relations for part in relation.key]
        if not plain and random.randrange(5) == 0:
            scope.window = lambda ty: self.window(ty, columns, outer, keys)
        items = [self.expressions.make(ty, scope, depth) for ty in types]
        head = "DISTINCT " if random.randrange(6) == 0 and not plain else ""
        if not plain and not head and "jsonb" not in types and random.randrange(20) == 0:
            # The first row of each value of the first column: of all columns, so that it is one.
            places = ", ".join(str(place) for place in range(1, len(types) + 1))
            first = Node(types[0], items[0].sql())
            query = self.built(types, items, "", node, where, f" ORDER BY {places}")
            return self.parenthesized(Node("query", "SELECT DISTINCT ON (", first, ")", *query.parts[2:]), types)
        return self.built(types, items, head, node, where, "")

    def joined(self, columns, outer):
        """A column equals one of the query around, or nothing that it has: then the subquery sees no rows. `None` at the top."""
        around = outer.columns if outer is not None else []
        pairs = [(own, other, ty) for own, ty in columns for other, of in around if ty == of and ty in ("int4", "int8", "text", "date")]
        if not pairs:
            return None
        own, other, ty = self.random.choice(pairs)
        shift = " + 1000" if ty in ("int4", "int8") and self.random.randrange(3) == 0 else ""
        return Node("bool", f"({own} = {other}{shift})")

    def parenthesized(self, query, types):
        node = Node("query", "SELECT * FROM (", query, f") AS {self.fresh('q')} ({', '.join(f'x{n}' for n in range(len(types)))})")
        node.columns = types
        return node

    def built(self, types, items, head, source, where, tail):
        random = self.random
        named = [
            Node("item", item, f" AS r{place}") if random.randrange(3) == 0 else Node("item", item) for place, item in enumerate(items)
        ]
        parts = ["SELECT ", optional(head) if head else "", listed(", ", named)]
        if source is not None:
            parts += [" FROM ", source]
        if where is not None:
            parts.append(optional(" WHERE ", where))
        parts.append(tail)
        query = Node("query", *parts)
        query.columns = types
        return query

    def grouped(self, types, source, scope, where, depth, kind):
        random = self.random
        keys = []
        if kind == "by":
            for _ in range(random.randrange(1, 3)):
                ty = random.choice([ty for _, ty in scope.columns] or ["int4"])
                keys.append((self.expressions.leaf(ty, Scope(scope.columns)) if random.randrange(3) else self.key(ty, scope), ty))
            # A constant is the number of a column there.
            keys = [(node, ty) for node, ty in keys if any(sql in node.sql() for sql, _ in scope.columns)]
        over = Scope([(node.sql(), ty) for node, ty in keys], scope.outer)
        made = []

        def aggregate(ty):
            node = self.expressions.aggregate(ty, scope, 1)
            made.append(node)
            return node

        over.aggregate = aggregate
        items = [self.expressions.make(ty, over, min(depth, 2)) for ty in types]
        tail = []
        if keys:
            texts = [node.sql() for node, _ in keys]
            form = random.randrange(10)
            if form == 0:
                clause = f"ROLLUP ({', '.join(texts)})"
            elif form == 1:
                clause = f"CUBE ({', '.join(texts)})"
            elif form == 2:
                clause = f"GROUPING SETS (({', '.join(texts)}), ({texts[0]}), ())"
            else:
                clause = ", ".join(texts)
            tail.append(f" GROUP BY {clause}")
        elif kind == "by":
            tail.append(" GROUP BY ()")
        if random.randrange(4) == 0:
            tail.append(optional(" HAVING ", self.expressions.make("bool", over, 1)))
        if not keys and not any(made) and not tail:
            # Nothing else says that there is one row.
            tail.append(" HAVING count(*) >= 0")
        return self.built(types, items, "", source, where, Node("tail", *tail))

    def key(self, ty, scope):
        """An expression to group by; without subqueries, so that it is the same wherever it stands."""
        expressions = Expressions(self.random, None)
        expressions.of_subquery = lambda ty, scope, depth: expressions.leaf(ty, scope)
        return expressions.make(ty, Scope(scope.columns), 1)

    def window(self, ty, columns, outer, keys):
        """A call of a window function that answers a type, or `None`."""
        random = self.random
        inner = Scope(columns, outer)
        calls = list(WINDOWS.get(ty, []))
        if keys:
            calls += ["lag", "lead", "first_value", "last_value", "nth_value"]
        calls.append("aggregate")
        call = random.choice(calls)
        if call not in PEERS and call != "aggregate" and not keys:
            return None
        parts = []
        if call == "aggregate":
            node = self.expressions.aggregate(ty, inner, 1)
            # Neither DISTINCT nor ORDER BY may stand in one.
            if node is None or any(word in node.sql() for word in ("DISTINCT", "ORDER BY")):
                return None
            parts.append(node)
        elif "(" in call:
            parts.append(call)
        else:
            argument = self.expressions.make(ty, inner, 1)
            if call in ("lag", "lead") and random.randrange(2):
                parts += [f"{call}(", argument, f", {random.choice([0, 1, 2])}", ")"]
            elif call == "nth_value":
                parts += ["nth_value(", argument, ", 2)"]
            else:
                parts += [f"{call}(", argument, ")"]
        over = []
        if random.randrange(2):
            over.append(optional("PARTITION BY ", self.key(random.choice(["int4", "text", "bool", "date"]), inner)))
        order = []
        if random.randrange(3) or call != "aggregate":
            order.append(self.key(random.choice(["int4", "text", "numeric", "date"]), inner).sql() + random.choice(["", " DESC", " NULLS FIRST"]))
            total = bool(keys) and (call not in PEERS or random.randrange(2))
            if total:
                order += keys
            frames = FRAMES if total else FRAMES[:2] + [" RANGE UNBOUNDED PRECEDING", " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING"]
            over.append(optional(" ORDER BY " + ", ".join(order) + random.choice(frames)))
        return Node(ty, *parts, " OVER (", *over, ")")
