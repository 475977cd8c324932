"""Statements as trees, so that parts of them can be dropped or replaced while the rest stays valid."""


class Node:
    """A part of a statement: texts and nodes in order.

    `kind` is the type of an expression ("int4"), or "query", "from", "list" (items between separators), "optional" (a clause).
    """

    __slots__ = ("kind", "parts", "columns")

    def __init__(self, kind, *parts):
        self.kind = kind
        self.parts = list(parts)
        #: Of a query: types of its columns.
        self.columns = None

    def sql(self):
        if self.kind == "list":
            separator, *items = self.parts
            return separator.join(item if isinstance(item, str) else item.sql() for item in items)
        return "".join(part if isinstance(part, str) else part.sql() for part in self.parts)

    def copy(self):
        node = Node(self.kind, *(part if isinstance(part, str) else part.copy() for part in self.parts))
        node.columns = self.columns
        return node

    def nodes(self):
        """This node and all below, outer ones first."""
        yield self
        for part in self.parts:
            if not isinstance(part, str):
                yield from part.nodes()

    def size(self):
        return len(self.sql())


def text(kind, template, *parts):
    """A node of a template with `{}` for each part."""
    pieces = template.split("{}")
    assert len(pieces) == len(parts) + 1, (template, len(parts))
    mixed = [pieces[0]]
    for part, piece in zip(parts, pieces[1:]):
        mixed += [part, piece]
    return Node(kind, *mixed)


def listed(separator, items):
    return Node("list", separator, *items)


def optional(*parts):
    return Node("optional", *parts)
