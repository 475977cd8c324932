"""Random PromQL: valid nearly always, over the metrics of test_prometheus.py, and with one right answer.

What versions of Prometheus or the order of a sum decide is left out: the edge of a range (no sample lies on one), rounding what was
summed, equality of what was summed, which of equal values `topk` takes."""

#: Values differ from series to series, so that the first ten are a matter of fact.
DISTINCT = [
    "container_cpu_usage_seconds_total",
    "container_network_receive_bytes_total",
    "container_network_transmit_bytes_total",
    "container_fs_reads_bytes_total",
]
COUNTERS = DISTINCT + ["http_requests_total", "error_count_total", "kube_pod_container_status_restarts_total"]
GAUGES = ["container_memory_working_set_bytes", "node_load5", "kube_pod_status_ready", "live_temperature", "up"]
MATCHERS = [
    'namespace="namespace-1"', 'namespace!="namespace-2"', 'node=~"node-0.*"', 'service!~"service-1.*"', 'region=~"region-[01]"',
    'pod=~".*1|.*2"', 'missing=""', 'cluster!=""', 'service=~"service-(00|01|02)"', 'nowhere="x"',
]
RANGES = ["75s", "2m", "5m", "15m", "1h", "2h30m"]
OVER_TIME = ["avg", "min", "max", "sum", "count", "last", "present", "stddev", "stdvar"]


class RandomText:
    """Random choices of a language with `LABELS`."""

    def __init__(self, random):
        self.random, self.pick = random, random.choice

    def chance(self, of):
        return self.random.random() < of

    def grouping(self):
        labels = ", ".join(self.random.sample(self.LABELS, self.random.randint(0, 3)))
        return f" {self.pick(['by', 'without'])} ({labels})"


class Expressions(RandomText):
    LABELS = ["namespace", "node", "service", "region", "cluster", "job", "pod"]

    def selector(self, metrics):
        text = self.pick(metrics)
        if self.chance(0.4):
            text += "{" + ",".join(self.random.sample(MATCHERS[:-1], self.random.randint(1, 2))) + "}"
        elif self.chance(0.03):
            text += "{" + MATCHERS[-1] + "}"
        return text

    def moved(self):
        if self.chance(0.15):
            return f" offset {self.pick(['30s', '5m', '1h', '-2m'])}"
        return ""

    def instant(self, metrics=None):
        return self.selector(metrics or COUNTERS + GAUGES) + self.moved()

    def of_range(self, metrics=None):
        metrics = metrics or COUNTERS + GAUGES
        if self.chance(0.12):
            return f"({self.vector(2)})[{self.pick(['15m', '1h'])}:{self.pick(['1m', '5m'])}]"
        return self.selector(metrics) + f"[{self.pick(RANGES)}]" + self.moved()

    def function(self):
        kind = self.random.randrange(9)
        if kind < 3:
            return f"{self.pick(['rate', 'increase', 'irate', 'resets'])}({self.of_range(COUNTERS)})"
        if kind == 3:
            return f"{self.pick(['delta', 'idelta', 'changes'])}({self.of_range(GAUGES)})"
        if kind == 4:
            return f"quantile_over_time({self.pick(['0', '0.25', '0.9', '1'])}, {self.of_range()})"
        if kind == 5:
            return f"deriv({self.of_range(['node_load5', 'container_memory_working_set_bytes'])})"
        if kind == 6:
            return f"predict_linear({self.of_range(['node_load5'])}, {self.pick(['60', '3600'])})"
        return f"{self.pick(OVER_TIME)}_over_time({self.of_range()})"

    def aggregation(self, depth):
        if self.chance(0.2):
            pick = f"{self.pick(['topk', 'bottomk'])}{self.grouping() if self.chance(0.5) else ''}"
            return f"{pick} ({self.random.randint(1, 12)}, {self.selector(DISTINCT)})"
        if self.chance(0.1):
            return f"quantile{self.grouping()} ({self.pick(['0.1', '0.5', '0.99'])}, {self.vector(depth - 1)})"
        if self.chance(0.05):
            return f'count_values{self.grouping()} ("value", kube_pod_status_ready)'
        name = self.pick(["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"])
        return f"{name}{self.grouping() if self.chance(0.8) else ''} ({self.vector(depth - 1)})"

    def shaped(self):
        """What looks at single values or labels."""
        name = self.pick(["abs", "ceil", "floor", "sqrt", "ln", "log2", "log10", "sgn", "round", "clamp", "time", "label", "hour", "absent"])
        inner = self.instant()
        if name == "round":
            return f"round({inner}, {self.pick(['1', '10', '0.5'])})"
        if name == "clamp":
            return f"{self.pick(['clamp_min', 'clamp_max'])}({inner}, {self.pick(['0', '5', '1e6', '1e9'])})"
        if name == "time":
            return f"timestamp({inner})"
        if name == "label":
            if self.chance(0.5):
                return f'label_replace({inner}, "short", "$1", "pod", "(.*)-[0-9]+")'
            return f'label_join({inner}, "place", "/", "region", "node")'
        if name == "hour":
            return f"{self.pick(['hour', 'minute', 'day_of_week', 'month', 'days_in_month'])}(timestamp({inner}))"
        if name == "absent":
            metric = self.pick(["up", "nothing_of_this_name"])
            return self.pick([f"absent({inner})", f'absent_over_time({metric}{{job="nobody"}}[5m])', f"absent({metric})"])
        return f"{name}({inner})"

    def binary(self, depth):
        if self.chance(0.4):
            number = self.pick(["2", "0.5", "1e3", "-1", "100"])
            operator = self.pick(["+", "-", "*", "/", "^", ">", "<=", "> bool", "atan2"])
            if operator == "^":
                return f"({self.instant(GAUGES)}) ^ 2"
            return f"({self.vector(depth - 1)}) {operator} {number}"
        if self.chance(0.4):
            left, right = self.pick([("container_network_receive_bytes_total", "container_network_transmit_bytes_total"), ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes"), ("error_count_total", "kube_pod_container_status_restarts_total")])
            operator = self.pick(["+", "-", "*", "/", "%", ">", "< bool", "and", "or", "unless"])
            on = self.pick(["", " on (pod)", " ignoring (missing)", " on (pod, namespace, node)"])
            return f"{left} {operator}{on} {right}"
        if self.chance(0.5):
            operator = self.pick(["*", "/", "+"])
            return (
                f"sum by (pod, node) ({self.selector(DISTINCT)}) {operator} on (node) group_left"
                f" avg by (node) ({self.selector(GAUGES[:2])})"
            )
        return f"({self.vector(depth - 1)}) {self.pick(['and', 'or', 'unless'])} ({self.vector(depth - 1)})"

    def vector(self, depth):
        if depth <= 0:
            return self.function() if self.chance(0.5) else self.instant()
        kind = self.random.randrange(10)
        if kind < 4:
            return self.aggregation(depth)
        if kind < 6:
            return self.function()
        if kind < 8:
            return self.binary(depth)
        if kind == 8:
            bucket = f"rate({self.selector(['http_request_duration_seconds_bucket'])}[{self.pick(RANGES[1:])}])"
            return f"histogram_quantile({self.pick(['0.5', '0.9', '0.99'])}, sum by (le, {self.pick(self.LABELS)}) ({bucket}))"
        return self.shaped()

    def next(self):
        return self.vector(self.random.randint(1, 3))
