"""Series of every kind, and expressions over them that reach every part of PromQL, the experimental ones among them.

Times of samples lie on a grid of 15 seconds; questions are asked off that grid, so that the edge of a range is no matter of taste."""

import struct

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
    add("a:rule", {"job": "shop-0"}, lambda p: float(p))
    return out


# ---- expressions ----

#: Of each part something, in an order that follows Prometheus' documentation.
WRITTEN = """
rate(sales_total[5m * 2])
rate(sales_total[5m + 30s])
rate(sales_total[max_of(step(), 2m)])
rate(sales_total[min_of(step() * 10, 4m)])
increase(sales_total[range() + 2m])
sum_over_time(stock[(2 ^ 2) * 1m])
sum_over_time(stock[10m % 7m])
max_over_time(stock[600])
max_over_time(stock[-(-5m)])
stock offset -2m
stock offset (-2m)
stock offset -(1m + 1m)
stock offset (step() * 2)
stock offset -min_of(30s, step())
rate(sales_total[5m] offset -5m)
rate(sales_total[5m] offset 2.5m)
stock @ start()
stock @ end() offset 5m
rate(sales_total[5m] @ end())
sum_over_time(rate(sales_total[2m])[10m:1m] @ end() offset 1m)
avg_over_time((stock > 1000)[10m:step() + 7s])
max_over_time(rate(sales_total[2m])[5m:30s] offset 3m)
rate(sales_total[4m] anchored)
increase(sales_total[4m] anchored)
delta(stock[4m] anchored)
changes(patchy[4m] anchored)
resets(sales_total[20m] anchored)
rate(sales_total[4m] smoothed)
increase(sales_total[4m] smoothed)
delta(stock[4m] smoothed)
stock smoothed
patchy smoothed
patchy[3m] smoothed
patchy[3m] anchored
ends smoothed
rate(ends[6m] smoothed)
rate(ends[6m] anchored)
stock smoothed offset 1m
h_seconds smoothed
histogram_count(rate(h_seconds[4m] smoothed))
histogram_sum(increase(h_seconds[4m] anchored))
rate(sales_total[4m] anchored @ end())
avg_over_time(stock[4m] anchored)
irate(sales_total[4m] smoothed)
h_seconds
h_gauge
h_custom
mixed
rate(h_seconds[5m])
increase(h_seconds[5m])
irate(h_seconds[5m])
delta(h_gauge[5m])
idelta(h_gauge[5m])
rate(h_gauge[5m])
delta(h_seconds[5m])
rate(h_custom[5m])
rate(mixed[5m])
rate(mixed[20m])
increase(mixed[3m])
sum(rate(h_seconds[5m]))
sum by (job) (rate(h_seconds[5m]))
avg by (zone) (h_gauge)
sum(h_custom)
avg(h_custom)
sum by (job) (h_custom)
sum(mixed)
avg by (zone) (mixed)
count(mixed)
group by (zone) (mixed)
min(mixed)
max by (job) (mixed)
stddev(mixed)
quantile(0.5, mixed)
count(topk(2, mixed))
count(limitk(2, mixed))
limit_ratio(0.5, mixed)
count(count_values("v", h_gauge))
histogram_quantile(0.9, rate(h_seconds[5m]))
histogram_quantile(0.5, h_custom)
histogram_quantile(0.1, h_gauge)
histogram_quantile(1.2, h_gauge)
histogram_quantile(-1, h_gauge)
histogram_quantile(NaN, h_gauge)
histogram_quantile(0.9, sum by (le, job) (rate(wait_seconds_bucket[5m])))
histogram_quantile(0.9, stock)
histogram_quantile(0.9, {__name__=~"wait_seconds_bucket|h_seconds"})
histogram_quantiles(h_seconds, "q", 0.1, 0.5, 0.9)
histogram_quantiles(wait_seconds_bucket, "q", 0.1, 0.99)
histogram_quantiles(h_custom, "q", 0.25)
histogram_fraction(0, 1, h_seconds)
histogram_fraction(-1, 0.5, rate(h_seconds[5m]))
histogram_fraction(0.2, 2, h_custom)
histogram_fraction(0.2, 2, wait_seconds_bucket)
histogram_fraction(3, 1, h_seconds)
histogram_fraction(-Inf, +Inf, h_seconds)
histogram_avg(h_seconds)
histogram_count(h_seconds)
histogram_sum(h_custom)
histogram_stddev(h_seconds)
histogram_stdvar(h_gauge)
histogram_stddev(h_custom)
histogram_count(stock)
h_seconds + h_seconds
h_seconds - h_gauge
h_seconds - h_seconds
h_seconds * 2
2 * h_seconds
h_seconds / 2
2 / h_seconds
h_seconds ^ 2
h_seconds % 2
-h_seconds
h_seconds == h_seconds
h_seconds != h_seconds
h_seconds == h_gauge
h_seconds > h_gauge
h_seconds > 1
h_seconds == bool h_seconds
h_seconds + stock
stock + h_seconds
h_custom + h_custom
h_custom + on (job) group_left () h_custom{instance="till-0:80"}
h_custom{job="shop-0"} + on (instance) h_custom{job="shop-3"}
h_seconds + on (instance, job) h_custom
h_seconds{job="shop-0"} + on (instance) h_seconds{job="shop-1"}
h_seconds{job="shop-2"} - on (instance) h_seconds{job="shop-1"}
h_seconds and stock
mixed or stock
mixed unless h_seconds
h_seconds </ 2
h_seconds >/ 2
h_custom </ 1.5
h_custom >/ 1.5
h_seconds </ -1
stock </ 2
2 </ h_seconds
histogram_count(h_seconds >/ 0.25)
sum_over_time(h_seconds[2m])
avg_over_time(h_gauge[2m])
avg_over_time(mixed[10m])
sum_over_time(h_custom[2m])
max_over_time(mixed[10m])
min_over_time(h_seconds[2m])
quantile_over_time(0.5, mixed[10m])
stddev_over_time(mixed[10m])
mad_over_time(mixed[10m])
count_over_time(mixed[10m])
last_over_time(mixed[10m])
first_over_time(mixed[10m])
present_over_time(h_seconds[2m])
changes(h_gauge[5m])
resets(h_seconds[20m])
changes(mixed[10m])
resets(mixed[10m])
deriv(mixed[10m])
deriv(h_seconds[5m])
predict_linear(mixed[10m], 60)
absent_over_time(h_seconds[2m])
absent(h_seconds)
timestamp(h_seconds)
abs(h_seconds)
clamp(mixed, 0, 10)
round(mixed, 5)
label_replace(h_seconds, "short", "$1", "job", "shop-(.)")
sort(mixed)
scalar(h_seconds{job="shop-0",instance="till-0:80"})
h_seconds[1m]
mixed[5m]
h_seconds[2m:30s]
info(stock)
info(rate(sales_total[5m]))
info(stock, {version=~"v1.*"})
info(stock, {os="linux"})
info(stock, {__name__="build_info"})
info(stock, {__name__=~".+_info"})
info(stock, {__name__!="target_info"})
info(stock, {commit=~".*"})
info(stock, {commit=~".+"})
info(h_seconds, {version!=""})
info(stock @ end())
info(stock offset 1m)
info(sum by (job, instance) (stock), {os="plan9"})
info(target_info)
count(limitk(2, stock))
count by (job) (limitk by (job) (1, stock))
limitk(0, stock)
limitk(-1, stock)
limitk(1e6, stock)
count(limitk without (instance) (2, stock))
limit_ratio(0.3, stock)
limit_ratio(-0.3, stock)
limit_ratio(1.3, stock)
limit_ratio by (job) (0.5, stock)
limit_ratio(0, stock)
limit_ratio(-2, stock)
limit_ratio(NaN, stock)
limitk(NaN, stock)
topk(NaN, stock)
topk(1e30, stock)
topk by (zone) (2, stock)
bottomk without (instance, job) (1, stock)
quantile by (zone) (0.3, stock)
quantile(1.5, stock)
quantile(-0.5, stock)
quantile(NaN, stock)
count_values("v", round(stock, 100))
count_values by (zone) ("zone", target_info)
count_values("bad label", target_info)
count_values("", target_info)
sort_by_label(stock, "zone", "instance")
sort_by_label_desc(stock, "job")
sort_by_label(target_info, "version", "os")
sort(stock)
sort_desc(stock)
double_exponential_smoothing(stock[5m], 0.3, 0.6)
double_exponential_smoothing(mixed[10m], 0.5, 0.5)
double_exponential_smoothing(stock[5m], 1, 0.6)
double_exponential_smoothing(stock[5m], 0.5, -1)
ts_of_first_over_time(patchy[5m])
ts_of_last_over_time(patchy[5m])
ts_of_max_over_time(stock[5m])
ts_of_min_over_time(stock[5m])
ts_of_max_over_time(mixed[10m])
ts_of_min_over_time(odd[5m])
ts_of_last_over_time(h_seconds[5m])
first_over_time(patchy[5m])
mad_over_time(stock[5m])
mad_over_time(odd[5m])
quantile_over_time(0.4, odd[5m])
min_over_time(odd[5m])
max_over_time(odd[5m])
avg_over_time(odd[5m])
sum_over_time(odd[5m])
stddev_over_time(odd[5m])
stddev(odd)
avg(odd)
sum(odd)
min by (job) (odd)
max by (job) (odd)
topk(100, odd)
quantile(0.5, odd)
odd > 0
odd == odd
odd != bool odd
odd % 2
odd ^ 2
sgn(odd)
round(odd, 0.5)
clamp_max(odd, 10)
clamp(odd, 5, 1)
clamp(odd, NaN, 1)
sqrt(odd)
ln(odd)
exp(odd)
acosh(odd)
deg(odd) + rad(odd)
day_of_year(stock * 1e6)
days_in_month(vector(1.7e9))
hour()
minute(vector(1e12))
start_timestamp(stock)
start()
end() - start()
step()
range()
max_of(1, 2) + min_of(NaN, 3)
vector(step())
time() - end()
pi()
stock{job="shop-0"} + fill(0) sales_total
stock{job="shop-0"} + on (instance, job) fill(5) sales_total
stock{zone="a"} + fill_left(-1) fill_right(2) sales_total{job=~"shop-[01]"}
stock{zone="a"} > bool fill_left(1) sales_total
stock{zone="a"} - on (instance, zone) group_left fill_right(7) sales_total{job="shop-1"}
sales_total{job="shop-1"} - on (instance, zone) group_right fill_left(7) stock{zone="a"}
stock + fill(NaN) nothing
nothing + fill(1) stock
stock == fill(0) nothing
stock and fill(1) nothing
stock atan2 sales_total
stock or sales_total
stock unless on (job) sales_total{job="shop-1"}
stock and on () vector(1)
stock * on (job, instance) group_left (version) target_info
stock * on (job, instance) group_left (version, os) target_info
target_info * on (job, instance) group_right (version) stock
stock * on (job) sales_total
stock * on (job) group_left sales_total
stock + ignoring (zone) target_info
stock + ignoring (zone, version, os) target_info
stock > bool 1000
1000 < bool stock
1 == bool 1
2 ^ 3 ^ 2
-2 ^ 2
1 - -1
0x1F + 1e3 + .5 + 1_000
Inf - inf + NaN
5m + 30s
"text"
'single \\'quoted\\''
`raw \\n`
stock[1m]
stock[1m:20s]
stock[5m] @ end()
{"zähler.total"}
{"zähler.total", "späti"="ecke"}
{"zähler.total", "späti"=~"m.*"}
sum by ("späti") ({"zähler.total"})
rate({"zähler.total"}[5m])
label_replace({"zähler.total"}, "größe", "$1", "späti", "(.).*")
label_join({"zähler.total"}, "neu", "-", "späti", "job")
{__name__="zähler.total"} * on ("späti") {"zähler.total"}
absent({"zähler.total", "späti"="nirgends"})
absent(nothing{job="x", instance=~"y", zone!="z"})
absent_over_time(nothing{job="x"}[5m])
absent(sum(nothing))
a:rule
a:rule{job="shop-0"}
{job="shop-0", __name__=~"s.*"}
{job=~"shop-(0|1)", __name__="stock"}
stock{job!~"shop-[12]"}
stock{nothere=""}
label_replace(stock, "job", "", "job", ".*")
label_replace(stock, "zone", "x-$1", "job", "shop-(.*)")
label_replace(stock, "__name__", "other", "job", "(.*)")
label_replace(stock, "bad-name", "$1", "job", "(.*)")
label_replace(stock, "instance", "same", "job", ".*")
label_join(stock, "all", "/", "job", "zone", "nothere")
label_join(stock, "", "/", "job")
sum without () (stock)
sum without (instance) (stock)
sum by () (stock)
sum(stock) by (job, job)
avg by (zone, nothere) (stock)
stddev by (job) (stock)
stdvar(stock)
count by (job) (patchy)
ends
count(ends)
sum_over_time(ends[5m])
last_over_time(ends[10m])
changes(ends[10m])
patchy
rate(patchy[5m])
irate(patchy[5m])
idelta(patchy[5m])
delta(patchy[5m])
deriv(patchy[5m])
predict_linear(stock[5m], 3600)
resets(sales_total[30m])
rate(stock[5m])
increase(stock[5m])
rate(wait_seconds_sum[5m]) / rate(wait_seconds_count[5m])
rate(sum(sales_total)[10m:1m])
sum_over_time(sum_over_time(stock[1m])[5m:1m])
vector(1)[5m:1m]
time()
scalar(stock)
scalar(sum(stock))
vector(scalar(sum(stock)))
timestamp(stock)
timestamp(stock offset 1m)
timestamp(sum(stock))
timestamp(stock @ end())
bottomk(1, stock) + topk(1, stock)
group(stock) * count(stock)
sum(stock) > 1 and sum(sales_total) > 1
stock offset 10m > stock
((stock))
+stock
-(stock)
--stock
-1 ^ stock
stock ^ -1
sum(topk by (job) (1, stock))
count(count by (job) (stock))
stock[5m] offset 1m
quantile_over_time(scalar(vector(0.5)), stock[5m])
quantile_over_time(2, stock[5m])
clamp_min(stock, scalar(avg(stock)))
round(stock, 0)
max_over_time(stock[5m]) - min_over_time(stock[5m])
present_over_time(stock[5m])
stdvar_over_time(stock[5m])
count_over_time(stock[0s])
day_of_week(vector(0))
year(vector(-1))
"""

#: What Prometheus refuses, or takes against expectation.
MISTAKES = """
stock{
stock}
stock{job=}
stock{job="a"
stock{job="a",,}
stock{job="a",}
stock{,}
stock{job="a" zone="b"}
stock{"job"}
stock{"a", "b"}
{"a", "b"}
{"a", __name__="b"}
stock{__name__="x"}
{}
{job=""}
{job=~".*"}
{__name__!=""}
stock[
stock[]
stock[5]
stock[5m
stock[5m:
stock[5m:]
stock[5m:1m:]
stock[:1m]
stock[1m][5m]
stock[5m:1m][5m]
stock[0]
stock[-5m]
stock[5mm]
stock[5m5m]
stock[1d1w]
stock[5m +]
stock[5m + * 3]
stock[5m / 0]
stock[5m % 0]
stock[5m ^ 2]
stock[(5m]
stock[step]
stock[step(]
stock[step(1)]
stock[foo]
stock["5m"]
stock[1e400]
stock[99999999y]
stock[min_of(1m)]
stock[min_of(1m, 2m, 3m)]
stock[max_of(1m 2m)]
stock[5m : 1m / 0]
stock[-1 * 5m]
stock[step() - step()]
stock[5m - 10m]
stock[5m:-1m]
stock[NaN]
stock[Inf]
stock offset
stock offset 5
stock offset 5m offset 6m
stock offset foo
stock offset (5m
stock offset 5m + 3m
stock offset -
stock offset 1e400
stock offset ()
stock offset step
stock offset start()
stock @
stock @ foo
stock @ 1 @ 2
stock @ Inf
stock @ NaN
stock @ -Inf
stock @ 1e300
stock @ start
stock @ start(
stock @ start(1)
stock @ step()
stock @ 1m
stock anchored anchored
stock anchored smoothed
stock[5m] smoothed anchored
stock[5m:1m] anchored
anchored
stock anchored
sum(stock) smoothed
1 anchored
rate(stock[5m]) anchored
max_over_time(stock[5m] smoothed)
count_over_time(stock[5m] smoothed)
quantile_over_time(0.5, stock[5m] anchored)
absent_over_time(stock[5m] smoothed)
irate(stock[5m] anchored)
deriv(stock[5m] smoothed)
sum(stock[5m])
sum()
sum(
sum)
sum stock
sum by job (stock)
sum by (job stock)
sum by (job,, zone) (stock)
sum by ("") (stock)
sum by (1) (stock)
sum by (job) by (zone) (stock)
sum by (job) (stock) by (zone)
sum by (job)
sum(stock, stock)
sum(1)
sum("a")
sum(stock,)
topk(stock)
topk(stock, 5)
topk("a", stock)
topk(1, 2, stock)
topk()
count_values(stock)
count_values(1, stock)
quantile(stock, 0.5)
limitk(stock)
rate(stock)
rate(sum(stock))
rate()
rate(stock[5m], 1)
rate stock[5m]
rate(stock[5m]
rate(stock[5m]))
rate(stock[5m],)
rate(,)
abs(1)
abs(stock[5m])
abs("a")
abs()
nothing_like_it(stock)
clamp(stock)
clamp(stock, 1)
clamp(stock, 1, 2, 3)
clamp(stock, stock, 1)
round(stock, 1, 2)
label_replace(stock)
label_replace(stock, "a", "b", "c")
label_replace(stock, a, "b", "c", "d")
label_join(stock, "a")
label_join(stock, "a", "b", c)
histogram_quantile(stock)
histogram_quantile(stock, 0.5)
histogram_quantiles(stock, "q")
histogram_quantiles(stock, 0.5)
histogram_quantiles(stock, "q", 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
info(stock, target_info)
info(stock, target_info{a="b"})
info(stock, 1)
info(stock, rate(stock[5m]))
info(stock[5m])
info(1)
info()
info(stock, {a="b"}, {c="d"})
sort_by_label()
sort_by_label(stock, 1)
time(1)
vector(stock)
vector()
scalar(1)
start(1)
step(
min_of(1)
min_of(1, stock)
1 +
+ 
1 1
1 ! 2
1 = 2
1 =~ 2
1 == 1
1 > 2
1 and 1
1 or stock
stock and 1
stock unless "a"
"a" + "b"
"a" + 1
stock + "a"
stock + stock[5m]
1 + bool 1
stock + bool stock
stock and bool stock
stock + on stock
stock + on (job stock
stock + on (job) 1
1 + on (job) stock
stock + ignoring (job) 1
stock + group_left stock
stock + on (job) group_left (job) stock
stock and on (job) group_left stock
stock + on (job) group_left group_right stock
stock + fill stock
stock + fill() stock
stock + fill(a) stock
stock + fill(1) fill(2) stock
stock + fill_left(1) fill_left(2) stock
stock + fill_left(1) fill(2) stock
stock + fill(1) 2
2 + fill(1) stock
stock + fill(-1) stock
stock + fill(-) stock
stock fill(1)
stock or fill(1) stock
stock + bool fill(1) stock
stock + fill(1) on (job) stock
stock </ bool 1
stock > / 1
-"a"
-stock[5m]
-
--1
+-+1
(stock
stock)
()
(,)
(1, 2)
"unfinished
'unfinished
`unfinished
"bad \\q"
"\\x4"
"\\u12"
"\\400"
"a
b"
0x
0xg
1e
1e+
1.2.3
1_
1__0
0b1
0o17
1e5e5
.
..
5m3
5M
5ms5
1y1y
Infinity
nan
NAN
inf
stock # comment
# only
stock #
$
&
;
?
~
\\
stock{job="a"}{zone="b"}
stock.with.dots
stock-with-dash
1stock
_stock
:stock
sto:ck
sum:stock
by
without
on
offset
bool
ignoring
group_left
and
or
unless
and + or
sum + avg
sum{job="a"}
by{job="a"}
on{job="a"}
fill
fill_left
fill{job="a"}
smoothed
start
end
step
range
min_of
start{job="a"}
end + start
step + 1
inf{a="b"}
nan
Sum(stock)
SUM BY (job) (stock)
stock OFFSET 5m
Rate(stock[5m])
stock AND stock
stock{job="shop-0"} Offset 1m
ü
{ü="a"}
{"ü"="a"}
stock{"späti"="a"}
sum by (späti) (stock)
stock @ 0x10
stock @ -5m
stock offset 0x10
stock offset 1_000
stock[1_000]
stock[0x10]
stock[1e2]
stock[.5]
stock[1.5m]
stock offset 1.5h
label_replace(stock, "a", "$1", "b", "[")
count_values("a-b", stock)
absent(1)
absent_over_time(stock)
predict_linear(stock[5m])
holt_winters(stock[5m], 0.5, 0.5)
double_exponential_smoothing(stock[5m], 0.5)
quantile_over_time(stock[5m], 0.5)
hour(1)
hour(stock, stock)
sum(stock) by
sum by
sum by (
sum by (job
stock and on
stock and on (
stock + on () group_left
"""


def lines(text):
    return [line for line in text.splitlines() if line]


class Whole:
    """Random expressions over the whole language."""

    COUNTERS = ["sales_total", "wait_seconds_count", "wait_seconds_bucket", "h_seconds", "h_custom", "mixed", "patchy"]
    GAUGES = ["stock", "patchy", "h_gauge", "mixed", "ends", "odd", "a:rule"]
    LABELS = ["job", "instance", "zone", "le", "nothere"]
    MATCHERS = ['job="shop-1"', 'job!="shop-2"', 'instance=~"till-[01].*"', 'zone="a"', 'zone!~"b"', 'nothere=""', 'job=~".+"']
    RANGES = ["40s", "2m", "5m", "10m", "1m + 50s", "step() + 2m", "max_of(step(), 3m)", "range() / 4 + 2m", "2 * 100s"]
    FLOATS = ["stock", "sales_total"]

    def __init__(self, random):
        self.random, self.pick = random, random.choice

    def chance(self, of):
        return self.random.random() < of

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

    def grouping(self):
        labels = ", ".join(self.random.sample(self.LABELS, self.random.randint(0, 3)))
        return f" {self.pick(['by', 'without'])} ({labels})"

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
