"""Makes a statement and its tables smaller while something about them stays true."""

from tables import BARE, DECLARED, VALUES
from tree import Node

TYPES = set(DECLARED) | {"bool"}


def candidates(node, path=()):
    """Changes that make a tree smaller: (path, replacement) of one node, outer ones first."""
    if node.kind == "optional":
        yield path, Node("text", "")
    if node.kind == "list" and len(node.parts) > 2:
        for place in range(1, len(node.parts)):
            yield path, Node("list", *(part for at, part in enumerate(node.parts) if at != place))
    if node.kind in ("query", "from"):
        for below in node.nodes():
            if below is not node and below.kind == node.kind:
                yield path, below.copy()
    if node.kind in TYPES:
        if node.parts != [plain(node.kind)] and node.parts != ["NULL"]:
            yield path, Node(node.kind, plain(node.kind))
        for below in node.nodes():
            if below is not node and below.kind == node.kind:
                yield path, below.copy()
        if len(node.sql()) > 12:
            yield path, Node(node.kind, f"CAST(NULL AS {DECLARED.get(node.kind, node.kind)})")
    for place, part in enumerate(node.parts):
        if not isinstance(part, str):
            yield from candidates(part, (*path, place))


def plain(ty):
    value = VALUES.get(ty, ["NULL"])[1]
    return value if ty in BARE else f"CAST({value} AS {DECLARED.get(ty, ty)})"


def replaced(node, path, replacement):
    if not path:
        return replacement
    copy = Node(node.kind, *node.parts)
    copy.columns = node.columns
    copy.parts[path[0]] = replaced(node.parts[path[0]], path[1:], replacement)
    return copy


def shrunk(node, holds, tries=300):
    """The smallest tree found for which `holds(sql)`."""
    tried = set()
    while True:
        size = node.size()
        for path, replacement in candidates(node):
            smaller = replaced(node, path, replacement)
            sql = smaller.sql()
            if sql in tried or len(sql) >= size:
                continue
            tried.add(sql)
            tries -= 1
            if holds(sql):
                node = smaller
                break
            if tries <= 0:
                return node
        else:
            return node


def fewer(items, holds):
    """A short list of these for which `holds`: halves first, then single ones."""
    size = max(1, len(items) // 2)
    while items:
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            if holds(rest):
                items = rest
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
            continue
        size = min(size, max(1, len(items)))
    return items
