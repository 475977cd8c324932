//! Statements that need far more memory than available: a written list, and a generator.

/// Written statements.
pub(crate) fn written() -> Vec<String> {
    let wide = |item: &str, count: usize| vec![item; count].join(", ");
    let mut all: Vec<String> = [
        "SELECT length(replace(repeat('a', 16000000), 'a', repeat('b', 1000)))",
        "SELECT length(regexp_replace(repeat('a', 16000000), 'a', repeat('b', 1000), 'g'))",
        "SELECT length(replace(repeat('a', 160000), 'a', repeat('b', 10000)))",
        "SELECT length(array_to_string(array_fill(repeat('x', 10000), array[1000000]), ','))",
        "SELECT length(array_to_string(array_fill(repeat('x', 16000000), array[100]), ','))",
        "SELECT array_fill(1, array[1000000]) FROM generate_series(1, 100000)",
        "SELECT string_agg(repeat('x', 16000000), '') FROM generate_series(1, 200)",
        "SELECT array_agg(repeat('x', 16000000)) FROM generate_series(1, 200)",
        "SELECT json_agg(repeat('x', 1000000)) FROM generate_series(1, 2000)",
        "SELECT json_object_agg(i::text, repeat('x', 1000000)) FROM generate_series(1, 2000) AS s (i)",
        "SELECT string_agg(v, repeat(',', 1000000)) FROM t",
        "SELECT a, string_agg(repeat(v, 10000), '') FROM t GROUP BY a",
        "SELECT string_agg(repeat(v, 10000), '' ORDER BY id) FROM t",
        "SELECT array_agg(DISTINCT repeat(v, 10000) || id) FROM t",
        "SELECT mode() WITHIN GROUP (ORDER BY repeat(v, 10000)) FROM t",
        "SELECT repeat(v, 100000) FROM t",
        "SELECT repeat(v, 100000), repeat(v, 100001), repeat(v, 100002), repeat(v, 100003) FROM t",
        "SELECT repeat('x', 16000000), generate_series(1, 1000000)",
        "SELECT repeat('x', 16000000) FROM generate_series(1, 1000000)",
        "SELECT DISTINCT repeat(v, 100000) || id FROM t",
        "SELECT repeat(v, 100000) AS w FROM t ORDER BY w, id",
        "SELECT count(*) FROM t a JOIN t b ON repeat(a.v, 100000) = repeat(b.v, 100000)",
        "SELECT max(repeat(v, 100000)) OVER (PARTITION BY a ORDER BY id) FROM t",
        "SELECT lag(repeat(v, 100000), 100) OVER (ORDER BY id) FROM t",
        "SELECT (SELECT string_agg(repeat(b.v, 1000), '') FROM t b WHERE b.id < a.id) FROM t a",
        "SELECT ARRAY(SELECT repeat(v, 100000) FROM t)",
        "SELECT array(SELECT repeat('x', 16000000) FROM generate_series(1, 100))",
        "SELECT jsonb_build_array(repeat('\"', 16000000), repeat('\"', 16000000))",
        "SELECT overlay(repeat('x', 16000000) placing repeat('y', 16000000) from 8000000 for 0)",
        "SELECT length(translate(repeat('ab', 8000000), repeat('c', 15000000) || 'a', 'd'))",
        "SELECT btrim(repeat('a', 16000000), repeat('b', 15000000) || 'a')",
        "SELECT position(repeat('a', 7000000)::bytea || 'b'::bytea in repeat('a', 15000000)::bytea)",
        "SELECT string_to_array(repeat('a,', 8000000), ',')",
        "SELECT string_to_array(repeat('a', 16000000), NULL)",
        "SELECT regexp_split_to_array(repeat('a,', 8000000), ',')",
        "SELECT count(*) FROM regexp_matches(repeat('a', 16000000), '(((((((((a)))))))))', 'g')",
        "SELECT count(*) FROM regexp_split_to_table(repeat('a,', 8000000), ',')",
        "SELECT count(*) FROM string_to_table(repeat('a,', 8000000), ',')",
        "SELECT regexp_match(repeat('a', 15000000), '(((((((((((((((((((a*)))))))))))))))))))')",
        "SELECT format(repeat('%1$s', 1000), repeat('x', 16000000))",
        "SELECT lpad('x', 2147483647, 'y')",
        "SELECT encode(repeat('x', 16000000)::bytea, 'hex')",
        "SELECT quote_literal(repeat('''', 16000000))",
        "SELECT to_json(repeat(chr(1), 16000000))",
        "SELECT count(*) FROM unnest(array_fill(1, array[1000000]), array_fill(1, array[1000000]), array_fill(1, array[1000000]))",
        "SELECT array_replace(array_fill('a'::text, array[1000000]), 'a', repeat('b', 10000))",
        "SELECT array_fill(1, array[1000000]) @> array_fill(2, array[1000000])",
        "SELECT to_char(1, repeat('9', 16000000))",
        "SELECT to_char(now(), repeat('MONTH', 3000000))",
        "WITH RECURSIVE r (v) AS (SELECT 'x' UNION ALL SELECT v || v FROM r) SELECT length(v) FROM r",
        "WITH RECURSIVE r (v) AS (SELECT repeat('x', 1000000) UNION ALL SELECT v FROM r) SELECT count(*) FROM r",
        "WITH RECURSIVE r (v) AS (SELECT '[1]'::jsonb UNION ALL SELECT v || v FROM r) SELECT count(*) FROM r",
        "INSERT INTO t SELECT 10000 + i, 1, repeat('x', 10000000) FROM generate_series(1, 1000) AS s (i)",
        "UPDATE t SET v = repeat(v, 100000)",
        "UPDATE t SET v = v RETURNING repeat(v, 100000)",
        "SELECT count(*) FROM generate_series(1, 100000000000) AS s (i)",
        "SELECT * FROM generate_series(1, 100000000000) AS s (i)",
        "SELECT count(DISTINCT i) FROM generate_series(1, 100000000000) AS s (i)",
        "SELECT * FROM t a, t b, t c ORDER BY a.v, b.v, c.v",
        "SELECT a.v || b.v || c.v FROM t a, t b, t c",
        "SELECT array_agg(i) FROM generate_series(1, 200000000) AS s (i)",
        "SELECT xmlelement(name a)",
        "DECLARE c CURSOR WITH HOLD FOR SELECT repeat(v, 10000) FROM t; FETCH ALL FROM c",
        "SELECT set_config('application_name', repeat('x', 16000000), false)",
        "SELECT pg_advisory_lock(i) FROM generate_series(1, 10000000) AS s (i)",
    ]
    .map(str::to_owned)
    .into();
    all.push(format!("SELECT concat({})", wide("repeat('x', 16000000)", 100)));
    all.push(format!("SELECT {}", vec!["repeat('x', 16000000)"; 60].join(" || ")));
    all.push(format!("SELECT {}", wide("repeat('x', 16000000)", 1600)));
    all.push(format!("SELECT {} FROM generate_series(1, 2)", wide("repeat('x', 16000000)", 1600)));
    all.push(format!("SELECT {}", wide("array_fill(1, array[1000000])", 1000)));
    all.push(format!("SELECT {} FROM t", wide("repeat(v, 100000)", 100)));
    all.push(format!("SELECT {}", vec!["array_fill(1, array[100000])"; 30].join(" || ")));
    all.push(format!("SELECT array[{}]", wide("repeat('x', 16000000)", 100)));
    all.push(format!("SELECT json_build_array({})", wide("repeat('x', 16000000)", 100)));
    all.push(format!("VALUES {}", wide("(repeat('x', 16000000))", 1000)));
    all.push(format!("SELECT greatest({})", wide("repeat('x', 16000000)", 100)));
    all.push(format!(
        "SELECT coalesce({}, 'x')",
        wide("nullif(repeat('x', 16000000), repeat('x', 16000000))", 50)
    ));
    all.push(format!("SELECT CASE {} END", vec!["WHEN repeat('x', 16000000) = 'y' THEN 1"; 50].join(" ")));
    all.push(format!("SELECT 1 WHERE 'x' IN ({})", wide("repeat('x', 16000000)", 100)));
    all.push(format!("SELECT {}1{}", "repeat('x', 16000000) || (".repeat(50), ")".repeat(50)));
    all.push(format!("SELECT{}1", " ".repeat(14_000_000)));
    all.push(format!("VALUES {}", wide("(1)", 1_000_000)));
    all.push("SELECT 1;".repeat(100_000));
    all.push(format!("SELECT {}", wide("1", 100_000)));
    all.push(format!(
        "SELECT 1 WHERE {}",
        (0..1500).map(|n| format!("'x' ~ '(\\w{{60}}{n})'")).collect::<Vec<_>>().join(" OR ")
    ));
    all.push(format!(
        "INSERT INTO t VALUES {}",
        (0..1000).map(|n| format!("({n}, 1, repeat('x', 16000000))")).collect::<Vec<_>>().join(", ")
    ));
    all.push(format!("SELECT '{}'::jsonb", "[".repeat(1_000_000)));
    all.push(format!("SELECT '{{{}}}'::int[]", "1,".repeat(4_000_000).trim_end_matches(',')));
    all.push(format!("SELECT {}'x'{}", "to_json(".repeat(40), "::text)".repeat(40)));
    all.push(format!("SELECT {}'\"'{}", "quote_literal(".repeat(50), ")".repeat(50)));
    all.push("SELECT repeat('a', 16000000) LIKE '%' || repeat('a', 8000000) || 'b'".to_owned());
    all
}

/// Generates statements of nested functions, deterministically from a seed.
pub(crate) struct Generator(u64);

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `count`.
    fn below(&mut self, count: usize) -> usize {
        // Source of the constants: D. Knuth, MMIX.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn size(&mut self) -> &'static str {
        self.one(&["10", "1000", "100000", "1000000", "4000000", "16000000"])
    }

    /// A text.
    fn text(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.below(4) {
                0 => format!("repeat('x', {})", self.size()),
                1 => format!("repeat('ab,', {})", self.size()),
                2 => "i::text".to_owned(),
                _ => "'a'".to_owned(),
            };
        }
        let depth = depth - 1;
        match self.below(14) {
            0 => format!("replace({}, 'a', {})", self.text(depth), self.text(depth)),
            1 => format!("regexp_replace({}, 'x', {}, 'g')", self.text(depth), self.text(depth)),
            2 => format!("({} || {})", self.text(depth), self.text(depth)),
            3 => format!("concat({0}, {1}, {0}, {1})", self.text(depth), self.text(depth)),
            4 => format!("concat_ws({}, {}, 'a', 'b', 'c')", self.text(depth), self.text(depth)),
            5 => format!("array_to_string({}, {})", self.array(depth), self.text(depth)),
            6 => format!("translate({}, {}, 'yz')", self.text(depth), self.text(depth)),
            7 => format!("overlay({} placing {} from 3)", self.text(depth), self.text(depth)),
            8 => format!("format('%s%1$s%1$s', {})", self.text(depth)),
            9 => format!("lpad({}, {}, 'z')", self.text(depth), self.size()),
            10 => format!("json_build_object('k', {}, 'l', {})::text", self.text(depth), self.text(depth)),
            11 => format!("({}::jsonb)::text", self.document(depth)),
            12 => format!("encode({}::bytea, 'base64')", self.text(depth)),
            _ => format!("repeat({}, {})", self.text(depth), self.size()),
        }
    }

    /// An array of texts.
    fn array(&mut self, depth: usize) -> String {
        let depth = depth.saturating_sub(1);
        match self.below(5) {
            0 => format!("array_fill({}, array[{}])", self.text(depth), self.size()),
            1 => format!("string_to_array({}, 'x')", self.text(depth)),
            2 => format!("array[{}, {}]", self.text(depth), self.text(depth)),
            3 if depth > 0 => format!("array_cat({}, {})", self.array(depth), self.array(depth)),
            _ => format!("regexp_split_to_array({}, ',')", self.text(depth)),
        }
    }

    /// A document.
    fn document(&mut self, depth: usize) -> String {
        let depth = depth.saturating_sub(1);
        match self.below(3) {
            0 => format!("to_json({})::text", self.text(depth)),
            1 => format!("json_build_array({}, {})::text", self.text(depth), self.text(depth)),
            _ => format!("to_json({})::text", self.array(depth)),
        }
    }
}

impl Iterator for Generator {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let depth = 1 + self.below(4);
        let text = self.text(depth);
        let rows = self.one(&["1", "3", "100", "10000"]);
        Some(match self.below(9) {
            0 => format!("SELECT length({text}) FROM (VALUES (1), (2)) AS s (i)"),
            1 => format!("SELECT {text} FROM generate_series(1, {rows}) AS s (i)"),
            2 => format!("SELECT string_agg({text}, ',') FROM generate_series(1, {rows}) AS s (i)"),
            3 => format!("SELECT array_agg({text}) FROM generate_series(1, {rows}) AS s (i)"),
            4 => format!("SELECT i, {text} AS w FROM generate_series(1, {rows}) AS s (i) ORDER BY w"),
            5 => format!("SELECT count(*) FROM generate_series(1, {rows}) AS s (i) GROUP BY {text}"),
            6 => format!("SELECT {text}, {text} FROM generate_series(1, {rows}) AS s (i)"),
            7 => format!(
                "SELECT (SELECT max({text}) FROM generate_series(1, 3) AS u (j)) FROM generate_series(1, {rows}) AS s (i)"
            ),
            _ => format!("SELECT id, {text} FROM t, generate_series(1, 2) AS s (i) WHERE a < 3"),
        })
    }
}
