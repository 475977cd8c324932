"""Series of every kind, and random expressions over them. Written ones, which reach every part of PromQL, the experimental ones among
them, lie in `written.promql` and `mistakes.promql`.

Times of samples lie on a grid of 15 seconds; questions are asked off that grid, so that the edge of a range is no matter of taste."""

import struct
from pathlib import Path

from expressions import RandomText
from peer import field, snappy, varint

STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
STEP = 15
#: Samples of each series.
COUNT = 200


# ---- remote write 1.0 with native histograms ----


def zigzag(value):
    return varint((value << 1) ^ (value >> 63) if value < 0 else value << 1)


def number(tag, value):
    return varint(tag << 3) + varint(value & (1 << 64) - 1)


def double(tag, value):
    return varint(tag << 3 | 1) + struct.pack("<d", value)


def spans(tag, counts):
    """Spans and deltas of counts by index."""
    out, deltas, end, before = b"", b"", 0, 0
    indexes = sorted(counts)
    for place, index in enumerate(indexes):
        if place == 0 or index != indexes[place - 1] + 1:
            length = 1
            while index + length in counts:
                length += 1
            out += field(tag, varint(1 << 3) + zigzag(index - end) + number(2, length))
            end = index + length
        deltas += zigzag(counts[index] - before)
        before = counts[index]
    return out + (field(tag + 1, deltas) if deltas else b"")


def histogram(time_ms, schema, positive, negative=(), zero=0, total=0.0, bounds=(), gauge=False):
    """A native histogram of whole numbers: counts by index of the bucket."""
    positive, negative = dict(positive), dict(negative)
    count = sum(positive.values()) + sum(negative.values()) + zero
    out = number(1, count) + double(3, total) + varint(4 << 3) + zigzag(schema)
    if not bounds:
        out += double(5, 0.001) + number(6, zero)
    out += spans(8, negative) + spans(11, positive)
    if gauge:
        out += number(14, 3)
    out += number(15, time_ms)
    if bounds:
        out += field(16, b"".join(struct.pack("<d", bound) for bound in bounds))
    return out


def request(series):
    """`series`: labels, and samples (time in ms, number) or whole histograms as bytes."""
    raw = bytearray()
    for labels, samples in series:
        one = b"".join(field(1, field(1, name.encode()) + field(2, value.encode())) for name, value in sorted(labels.items()))
        for sample in samples:
            if isinstance(sample, bytes):
                one += field(4, sample)
            else:
                one += field(2, double(1, sample[1]) + number(2, sample[0]))
        raw += field(1, one)
    return snappy(bytes(raw))


# ---- the series ----


def series(begin, random):
    """All series: labels, and one sample or `None` for each step."""
    times = [(begin + place * STEP) * 1000 for place in range(COUNT)]
    out = []

    def add(name, labels, sample):
        values = [sample(place) for place in range(COUNT)]
        out.append(({"__name__": name} | labels, [None if v is None else (t, v) if isinstance(v, float) else v(t) for t, v in zip(times, values)]))

    for shop in range(4):
        for till in range(3):
            labels = {"job": f"shop-{shop}", "instance": f"till-{till}:80", "zone": ["a", "b"][shop % 2]}
            steps = [random.randrange(1, 50) for _ in range(COUNT)]
            total, sums = 1000.0, []
            for place, more in enumerate(steps):
                total = 3.0 if (place + 17 * till) % 90 == 89 else total + more
                sums.append(total)
            add("sales_total", labels, lambda p, s=sums: s[p])
            add("stock", labels, lambda p: float(random.randrange(-400, 400)) / 8 + 1000 * shop + 100 * till)
            # Holes, ends and odd values.
            add("patchy", labels, lambda p: None if (p // 7 + till) % 3 == 0 else float(p * (shop + 1)))
            if shop < 2:
                add("ends", labels, lambda p: None if p > 150 else STALE if p == 150 - shop else float(p + till))
                odd = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e300, 1e-300]
                add("odd", labels, lambda p: odd[(p // 4 + shop * 3 + till) % len(odd)])
            growing = [0] * 12
            for place, bound in enumerate(["0.1", "0.5", "1", "5", "+Inf"]):
                add("wait_seconds_bucket", labels | {"le": bound}, lambda p, b=place: float((p + 1) * (b + 1) * (shop + 2) + till))
            add("wait_seconds_count", labels, lambda p: float((p + 1) * 5 * (shop + 2) + till))
            add("wait_seconds_sum", labels, lambda p: (p + 1) * 2.5 * (shop + 2))
            add("target_info", {"job": labels["job"], "instance": labels["instance"], "version": f"v{shop}.{till}", "os": ["linux", "plan9"][till % 2]}, lambda p: 1.0)
            add("build_info", {"job": labels["job"], "instance": labels["instance"], "commit": f"c{shop}{till}"}, lambda p: 1.0)

            def counts(p, of=shop, by=till):
                q = p % 70 if by == 1 else p
                return {-2: q * (by + 1), 0: 3 * q + of, 1: q, 4: 2 * q + by, 5: q // 3}

            schema = [0, 1, 3, 2][shop]
            add("h_seconds", labels, lambda p: lambda t, c=counts(p), s=schema: histogram(t, s, c, {1: c[1]}, c[0], 1.5 * c[0] + 7 * c[4]))
            add("h_gauge", labels, lambda p: lambda t, c=counts(p % 9 + 1): histogram(t, 1, c, {}, 2, 3.0 * c[4], gauge=True))
            bounds = [0.5, 1.0, 2.5, 10.0] if shop < 3 else [0.5, 2.5, 20.0]
            add("h_custom", labels, lambda p: lambda t, q=p, b=bounds: histogram(t, -53, {i: (q + 1) * (i + 1) for i in range(len(b) + 1)}, total=2.0 * q, bounds=b))
            # Floats and histograms in turn.
            add("mixed", labels, lambda p: float(p) if (p // 20 + shop) % 2 else lambda t, c=counts(p): histogram(t, 1, c, {}, 1, 2.0))
    add("zähler.total", {"späti": "ecke", "job": "utf8"}, lambda p: float(p * 3))
    add("zähler.total", {"späti": "mitte", "job": "utf8"}, lambda p: float(p * 5))
    # Every bound that there is between two powers of two.
    add("h_fine", {"job": "shop-0"}, lambda p: None if p % 20 != 19 else lambda t: histogram(t, 8, {i: 1 + i % 3 for i in range(1, 257)}, total=1.0))
    add("a:rule", {"job": "shop-0"}, lambda p: float(p))
    return out


# ---- expressions ----


def lines(name):
    """The expressions of a file beside this one, one a line; its first line says what they are."""
    text = (Path(__file__).resolve().parent / name).read_text(encoding="utf-8")
    return [line for line in text.split("\n")[1:] if line]


class Whole(RandomText):
    """Random expressions over the whole language."""

    COUNTERS = ["sales_total", "wait_seconds_count", "wait_seconds_bucket", "h_seconds", "h_custom", "mixed", "patchy"]
    GAUGES = ["stock", "patchy", "h_gauge", "mixed", "ends", "odd", "a:rule"]
    LABELS = ["job", "instance", "zone", "le", "nothere"]
    MATCHERS = ['job="shop-1"', 'job!="shop-2"', 'instance=~"till-[01].*"', 'zone="a"', 'zone!~"b"', 'nothere=""', 'job=~".+"']
    RANGES = ["40s", "2m", "5m", "10m", "1m + 50s", "step() + 2m", "max_of(step(), 3m)", "range() / 4 + 2m", "2 * 100s"]
    FLOATS = ["stock", "sales_total"]

    def selector(self, names):
        text = self.pick(names)
        if self.chance(0.3):
            text += "{" + ", ".join(self.random.sample(self.MATCHERS, self.random.randint(1, 2))) + "}"
        return text

    def behind(self):
        text = ""
        if self.chance(0.06):
            text += " @ " + self.pick(["start()", "end()"])
        if self.chance(0.12):
            text += " offset " + self.pick(["1m", "-1m", "(step() + 1m)", "-(30s * 3)", "7s"])
        return text

    def instant(self):
        smooth = " smoothed" if self.chance(0.05) else ""
        return self.selector(self.COUNTERS + self.GAUGES) + smooth + self.behind()

    def ranged(self, names=None):
        if names is None and self.chance(0.15):
            return f"({self.vector(1)})[{self.pick(['4m', '10m'])}:{self.pick(['', '1m', '30s', 'step()' , '40s + 5s'])}]{self.behind()}".replace(":step()]", ":1m]")
        return f"{self.selector(names or self.COUNTERS + self.GAUGES)}[{self.pick(self.RANGES)}]{self.behind()}"

    def function(self, depth):
        kind = self.random.randrange(12)
        if kind < 3:
            edges = self.pick(["", "", "", " anchored", " smoothed"])
            name = self.pick(["rate", "increase", "delta"])
            return f"{name}({self.selector(self.COUNTERS + self.GAUGES)}[{self.pick(self.RANGES)}]{edges}{self.behind()})"
        if kind == 3:
            return f"{self.pick(['irate', 'idelta', 'resets', 'changes', 'deriv'])}({self.ranged()})"
        if kind < 6:
            name = self.pick(["avg", "min", "max", "sum", "count", "last", "first", "present", "stddev", "stdvar", "mad", "ts_of_first", "ts_of_last", "ts_of_max", "ts_of_min", "absent"])
            return f"{name}_over_time({self.ranged()})"
        if kind == 6:
            return self.pick([
                f"quantile_over_time({self.pick(['0.3', '0', '1', '1.5'])}, {self.ranged()})",
                f"predict_linear({self.ranged(self.GAUGES)}, 60)",
                f"double_exponential_smoothing({self.ranged(['stock', 'mixed'])}, 0.4, 0.3)",
            ])
        if kind == 7:
            return self.pick([
                f"histogram_quantile({self.pick(['0.5', '0.9', '0'])}, {self.vector(depth - 1)})",
                f"histogram_fraction(0, {self.pick(['1', '2.5'])}, {self.vector(depth - 1)})",
                f"histogram_{self.pick(['avg', 'count', 'sum', 'stddev', 'stdvar'])}({self.vector(depth - 1)})",
                f'histogram_quantiles({self.instant()}, "q", 0.2, 0.8)',
            ])
        if kind == 8:
            return self.pick([
                f"info({self.selector(['stock', 'sales_total', 'h_seconds'])})",
                f'info({self.instant()}, {{version=~"v[12].*"}})',
                f'info({self.vector(depth - 1)}, {{__name__="build_info"}})',
            ])
        if kind == 9:
            return self.pick([
                f'label_replace({self.vector(depth - 1)}, "new", "$1", "job", "shop-(.)")',
                f'label_join({self.vector(depth - 1)}, "new", "-", "job", "zone")',
                f"timestamp({self.vector(depth - 1)})", f"absent({self.vector(depth - 1)})",
                f"clamp({self.vector(depth - 1)}, 0, 500)", f"round({self.vector(depth - 1)}, 10)",
                f"sort_by_label({self.vector(depth - 1)}, \"instance\")", f"vector(scalar({self.vector(depth - 1)}))",
            ])
        name = self.pick(["abs", "ceil", "floor", "sgn", "sqrt", "ln", "exp", "sin", "deg"])
        return f"{name}({self.vector(depth - 1)})"

    def aggregation(self, depth):
        grouping = self.grouping() if self.chance(0.8) else ""
        if self.chance(0.25):
            pick = self.pick(["topk", "bottomk"])
            return f"{pick}{grouping} ({self.random.randint(0, 4)}, {self.selector(self.FLOATS)})"
        if self.chance(0.2):
            # Which ones `limitk` gives is not said.
            if self.chance(0.3):
                return f"count{grouping} (limitk{grouping} (2, {self.selector(self.COUNTERS + self.GAUGES)}))"
            return f"limit_ratio{grouping} ({self.pick(['0.4', '-0.7'])}, {self.selector(self.COUNTERS + self.GAUGES)})"
        if self.chance(0.1):
            return f"quantile{grouping} ({self.pick(['0.1', '0.5', '2'])}, {self.vector(depth - 1)})"
        if self.chance(0.05):
            return f'count_values{grouping} ("value", {self.pick(["target_info", "round(stock, 100)"])})'
        name = self.pick(["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"])
        return f"{name}{grouping} ({self.vector(depth - 1)})"

    def binary(self, depth):
        if self.chance(0.35):
            operator = self.pick(["+", "-", "*", "/", "%", "^", ">", "<=", "== bool", "!=", "> bool", "atan2", "</", ">/"])
            number = self.pick(["2", "0.5", "100", "-1", "NaN", "(1 / 3)"])
            sides = [f"({self.vector(depth - 1)})", number]
            if self.chance(0.3):
                sides.reverse()
            return f"{sides[0]} {operator} {sides[1]}"
        operator = self.pick(["+", "-", "*", "/", ">", "< bool", "==", "and", "or", "unless", "atan2"])
        matching = self.pick(["", " on (job, instance)", " ignoring (zone)", " on (job)", " on (job, instance, zone)"])
        if operator not in ("and", "or", "unless"):
            if matching and self.chance(0.3):
                matching += self.pick([" group_left", " group_right", " group_left (os)"])
            if self.chance(0.25):
                matching += self.pick([" fill (0)", " fill_left (1)", " fill_right (-2)", " fill_left (3) fill_right (4)"])
        return f"({self.vector(depth - 1)}) {operator}{matching} ({self.vector(depth - 1)})"

    def vector(self, depth):
        if depth <= 0:
            return self.instant()
        kind = self.random.randrange(10)
        if kind < 3:
            return self.aggregation(depth)
        if kind < 7:
            return self.function(depth)
        if kind < 9:
            return self.binary(depth)
        return f"-{self.instant()}"

    def next(self):
        return self.vector(self.random.randint(1, 3))

    def broken(self):
        """An expression in which something is missing, twice there, or changed."""
        import re

        words = re.findall(r"\s+|\w+|\"[^\"]*\"|.", self.next())
        for _ in range(self.random.randint(1, 2)):
            at = self.random.randrange(len(words))
            kind = self.random.randrange(4)
            if kind == 0 and len(words) > 1:
                del words[at]
            elif kind == 1:
                words.insert(at, words[self.random.randrange(len(words))])
            elif kind == 2:
                words.insert(at, self.pick(["(", ")", "[", "]", "{", "}", ",", ":", "@", "-", "+", "=", "!", "5m", "1", '"a"', "by", "on", "offset", "bool", "x", "'", "fill(", "smoothed"]))
            else:
                words[at] = self.pick(["(", ")", "[5m]", "{", "1", "sum", "rate", "step()", "by", "and", "5m", "", "nan", "=~"])
        return "".join(words)
