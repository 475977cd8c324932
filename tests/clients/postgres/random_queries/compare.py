"""Two servers, the same statements: what each answers, and whether that is the same."""

import re

from psycopg import pq

ROWS, COMMAND = pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK
#: Types of floating point numbers.
FLOATS = {700, 701}
NUMERIC = 1700
#: varchar and char are described as text, as docs/postgres.md says.
AS_TEXT = {1043: 25, 1042: 25, 1015: 1009, 1014: 1009}
EXECUTORS = ["auto", "rows", "engine", "nested"]
#: Statements that take PostgreSQL longer, or us, are left out; milliseconds.
PATIENCE, OUR_PATIENCE = 200, 3000


class Answer:
    """Rows of a statement, or its error."""

    def __init__(self, result):
        self.state = None
        self.message = ""
        self.rows, self.names, self.types = [], [], []
        if result.status in (ROWS, COMMAND):
            fields = range(result.nfields)
            self.names = [result.fname(field).decode() for field in fields]
            self.types = [result.ftype(field) for field in fields]
            self.rows = [tuple(result.get_value(row, field) for field in fields) for row in range(result.ntuples)]
        else:
            self.state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"?????").decode()
            self.message = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message or b"").decode()

    @property
    def is_refused(self):
        """What is not served says so; of what the parser does not know it says that this is no SQL."""
        return self.state == "0A000" or self.state == "42601" and self.message.startswith("syntax error")

    def shown(self):
        if self.state:
            return f"ERROR {self.state}: {self.message}"
        cell = lambda value: "NULL" if value is None else value.decode()
        lines = ["|".join(f"{name}:{ty}" for name, ty in zip(self.names, self.types))]
        lines += sorted("|".join(map(cell, row)) for row in self.rows[:50])
        more = f"\n… {len(self.rows)} rows" if len(self.rows) > 50 else ""
        return "\n".join(lines) + more


class Lost(Exception):
    """The server has closed the connection."""


class Client:
    def __init__(self, conninfo, settings=()):
        self.connection = pq.PGconn.connect(conninfo.encode())
        if self.connection.status != pq.ConnStatus.OK:
            raise Lost(self.connection.error_message.decode())
        for setting in settings:
            answer = self.ask(setting)
            assert answer.state is None, f"{setting}: {answer.message}"

    def ask(self, sql, way="simple"):
        """The answer of a statement. `way`: "parameters" sends its casts of literals as parameters, "transaction" asks within one."""
        if way == "transaction":
            self.ask("BEGIN")
            answer = self.ask(sql)
            self.ask("ROLLBACK")
            return answer
        if way == "parameters":
            sql, values = with_parameters(sql)
            result = self.connection.exec_params(sql.encode(), values)
        else:
            result = self.connection.exec_(sql.encode())
        if self.connection.status != pq.ConnStatus.OK:
            raise Lost(self.connection.error_message.decode())
        return Answer(result)


def with_parameters(sql):
    """A statement with `CAST($1 AS date)` for `CAST('2020-01-31' AS date)`, and the values."""
    values = {}

    def parameter(found):
        number = values.setdefault(found.group(1).replace("''", "'"), len(values) + 1)
        return f"CAST(${number} AS {found.group(2)})"

    # A parameter has one type: the same text of another type stays a literal.
    types = {}
    once = lambda found: parameter(found) if types.setdefault(found.group(1), found.group(2)) == found.group(2) else found.group(0)
    sql = re.sub(r"CAST\('((?:[^']|'')*)' AS ([a-z0-9\[\]]+)\)", once, sql)
    return sql, [value.encode() for value in values]


def rough(value, ty):
    """A value without what is not fixed: zeros at the end of a numeric, of which a group shows any."""
    if value is None:
        return b"\x00"
    if ty == NUMERIC and b"." in value:
        return value.rstrip(b"0").rstrip(b".")
    if ty in FLOATS:
        return repr(float(f"{float(value):.9g}")).encode() if value not in (b"NaN",) else value
    return value


def multiset(answer):
    return sorted(tuple(rough(value, ty) for value, ty in zip(row, answer.types)) for row in answer.rows)


def difference(ours, theirs):
    """What differs, in a word; `None` where nothing does. Order counts for none here."""
    if theirs.state and not theirs.state.startswith("42"):
        # A row that one looks at and the other does not may fail.
        return None if ours.state in (theirs.state, None) else f"error {theirs.state}, ours {ours.state}"
    if ours.state != theirs.state:
        return f"error {theirs.state or 'none'}, ours {ours.state or 'none'}"
    if theirs.state:
        return None
    if ours.names != theirs.names:
        return "column names"
    if ours.types != [AS_TEXT.get(ty, ty) for ty in theirs.types]:
        return "column types"
    if len(ours.rows) != len(theirs.rows):
        return "number of rows"
    exact = sorted(row_key(row) for row in ours.rows) == sorted(row_key(row) for row in theirs.rows)
    if not exact and multiset(ours) != multiset(theirs):
        return "rows"
    return None


def row_key(row):
    return tuple(b"\x00" if value is None else b"\x01" + value for value in row)


def order_difference(ours, theirs, sql):
    """Whether rows of a statement with ORDER BY over all columns come in another order."""
    if ours.state or theirs.state or not re.search(r" ORDER BY [^()]*$", sql):
        return None
    # The two zeros of a float are equal, so that rows with either come in any order.
    keys = lambda answer: [tuple(rough(value, ty) for value, ty in zip(row, answer.types)) for row in answer.rows]
    left, right = ([tuple(b"0.0" if value == b"-0.0" else value for value in row) for row in keys(answer)] for answer in (ours, theirs))
    return None if left == right else "order"


def reason(message):
    """A refusal without its names and numbers, so that reasons add up."""
    words = [word for word in message.split(" ") if not re.search(r'["_().0-9]', word)]
    return " ".join(words[:8])
