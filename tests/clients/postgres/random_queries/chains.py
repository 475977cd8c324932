"""Chains of operators without parentheses: both servers must read them in the same way."""

from tree import Node

OPERANDS = ["1", "2", "3", "7", "NULL", "true", "false", "'a'", "'2'", "ARRAY[1,2]", "'[1, {\"a\": 2}]'::jsonb", "DATE '2020-01-31'", "1.5", "f(2)"]
BETWEEN = ["+", "-", "*", "/", "%", "^", "=", "<>", "<", ">", "<=", ">=", "AND", "OR", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "||", "LIKE", "NOT LIKE",
           "ILIKE", "~", "!~", "&", "|", "#", "<<", ">>", "->", "->>", "@>", "<@", "?", "AND NOT", "OR NOT", "= ANY (ARRAY[1,2]) AND", "SIMILAR TO"]
AFTER = ["IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "ISNULL", "NOTNULL", "::text", "::int", "::numeric",
         "IN (1, 2)", "NOT IN (1, 3)", "BETWEEN 1 AND 3", "NOT BETWEEN 2 AND 3", "BETWEEN SYMMETRIC 3 AND 1", "[1]", "COLLATE \"C\"", "= ANY (ARRAY[1,2])", "<> ALL (ARRAY[1,2])"]
BEFORE = ["NOT", "-", "+", "~", "NOT NOT", "- -", "@"]
#: Of the operators, those between two booleans and those that give one; others rarely fit together.
LIKELY = ["+", "-", "*", "=", "<", "AND", "OR", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "||"]


def chain(random):
    """SELECT of a chain; most of them have operands of wrong types."""
    words = []
    for place in range(random.randrange(2, 6)):
        if place:
            words.append(random.choice(LIKELY if random.randrange(2) else BETWEEN))
        if random.randrange(4) == 0:
            words.append(random.choice(BEFORE))
        words.append(random.choice(OPERANDS[:7] if random.randrange(4) else OPERANDS).replace("f(2)", "abs(2)"))
        if random.randrange(3) == 0:
            words.append(random.choice(AFTER))
    query = Node("query", "SELECT " + " ".join(words) + " AS c")
    query.columns = [None]
    return query
