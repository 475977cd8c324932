//! The rows of `pg_proc`. Names and arguments are listed here; result types come from the binders.
//!
//! Tests compare the list with the implemented functions: none is missing, and each listed one can be called.

use std::sync::LazyLock;

use ropewalk::tables::{Scalar, Type};

use super::functions::{CatalogFunction, type_oid};
use super::show::{PSEUDO_TYPES, format_type};
use crate::functions;
use crate::functions::aggregate;
use crate::functions::set_returning::SetFunction;

/// Number of the first function; the others follow in the order of the list.
const FIRST: i64 = 3_000;

/// `name(arguments)`, followed by the result if no binder determines it. Types have PostgreSQL's short names;
/// `...` repeats the last one.
const LISTED: &str = "
acos(float8) acosh(float8) asin(float8) asinh(float8) atan(float8) atan2(float8,float8) atanh(float8) cos(float8) cosh(float8) cot(float8)
degrees(float8) factorial(int8) gcd(int4,int4) gcd(int8,int8) gcd(numeric,numeric) lcm(int4,int4) lcm(int8,int8) lcm(numeric,numeric)
min_scale(numeric) radians(float8) scale(numeric) sin(float8) sinh(float8) tan(float8) tanh(float8) trim_scale(numeric)
width_bucket(float8,float8,float8,int4) width_bucket(numeric,numeric,numeric,int4) width_bucket(anyelement,anyarray)
abbrev(cidr) abbrev(inet) broadcast(inet) digest(bytea,text) digest(text,text) family(inet) gen_random_bytes(int4) hmac(bytea,bytea,text) hmac(text,text,text)
host(inet) hostmask(inet) inet_same_family(inet,inet) masklen(inet) netmask(inet) network(inet) set_masklen(cidr,int4)
set_masklen(inet,int4) text(inet)
bit_count(bytea) bit_length(bytea) bit_length(text) btrim(bytea,bytea) convert_from(bytea,text) convert_to(text,text) get_bit(bytea,int8)
get_byte(bytea,int4) hashtext(text) hashtextextended(text,int8) ltrim(bytea,bytea) md5(bytea) md5(text) overlay(bytea,bytea,int4)
overlay(bytea,bytea,int4,int4) overlay(text,text,int4) overlay(text,text,int4,int4) rtrim(bytea,bytea) set_bit(bytea,int8,int4)
set_byte(bytea,int4,int4) sha224(bytea) sha256(bytea) sha384(bytea) sha512(bytea) strpos(bytea,bytea) substr(bytea,int4)
substr(bytea,int4,int4) substring(bytea,int4) substring(bytea,int4,int4)
regexp_count(text,text) regexp_count(text,text,int4) regexp_count(text,text,int4,text) regexp_instr(text,text)
regexp_instr(text,text,int4) regexp_instr(text,text,int4,int4) regexp_instr(text,text,int4,int4,int4)
regexp_instr(text,text,int4,int4,int4,text) regexp_instr(text,text,int4,int4,int4,text,int4) regexp_like(text,text)
regexp_like(text,text,text) regexp_match(text,text,text) regexp_matches(text,text,text) regexp_replace(text,text,text,int4)
regexp_replace(text,text,text,int4,int4) regexp_replace(text,text,text,int4,int4,text) regexp_split_to_array(text,text,text)
regexp_split_to_table(text,text) regexp_split_to_table(text,text,text) regexp_substr(text,text) regexp_substr(text,text,int4)
regexp_substr(text,text,int4,int4) regexp_substr(text,text,int4,int4,text) regexp_substr(text,text,int4,int4,text,int4)
string_to_table(text,text,text)
array_dims(anyarray) array_fill(anyelement,int4[])anyarray array_position(anyarray,anyelement,int4) array_positions(anyarray,anyelement)
array_replace(anyarray,anyelement,anyelement)anyarray array_to_json(anyarray) json_object(text[]) json_object(text[],text[])
json_strip_nulls(json) jsonb_object(text[])jsonb jsonb_object(text[],text[])jsonb jsonb_set_lax(jsonb,text[],jsonb)
jsonb_set_lax(jsonb,text[],jsonb,bool) jsonb_set_lax(jsonb,text[],jsonb,bool,text) num_nonnulls(any...) trim_array(anyarray,int4)anyarray
date_bin(interval,timestamp,timestamp) date_bin(interval,timestamptz,timestamptz) getdatabaseencoding()text isfinite(date)
isfinite(interval) isfinite(timestamp) isfinite(timestamptz) pg_client_encoding()text pg_sleep_for(interval)void to_char(float8,text)
to_char(numeric,text) to_char(int4,text) to_char(int8,text) to_date(text,text) to_hex(int4) to_number(text,text) to_timestamp(text,text)
abs(int2) abs(int4) abs(int8) abs(float4) abs(float8) abs(numeric) acldefault(char,oid) age(timestamp) age(timestamptz) age(timestamp,timestamp) age(timestamptz,timestamptz) append_event(text,text[],bytea)int8
array_append(anyarray,anyelement)anyarray array_cat(anyarray,anyarray)anyarray array_length(anyarray,int4)
array_lower(anyarray,int4) array_ndims(anyarray) array_position(anyarray,anyelement) array_prepend(anyelement,anyarray)anyarray
array_remove(anyarray,anyelement)anyarray array_to_string(anyarray,text) array_to_string(anyarray,text,text)
array_upper(anyarray,int4) ascii(text) btrim(text) btrim(text,text) cardinality(anyarray) cbrt(float8) ceil(float8)
ceil(numeric) ceiling(float8) ceiling(numeric) char_length(text) character_length(text) chr(int4) clock_timestamp()
col_description(oid,int4) concat(any...)text concat_ws(text,any...)text current_database() current_schema()text
current_schemas(bool) current_setting(text) current_setting(text,bool) current_user() currval(text)int8 date_part(text,date)float8
date_part(text,interval)float8 date_part(text,time)float8 date_part(text,timestamp)float8 date_part(text,timestamptz)float8 date_trunc(text,timestamp)
date_trunc(text,timestamptz) date_trunc(text,timestamptz,text) date_trunc(text,interval) decode(text,text) div(numeric,numeric) encode(bytea,text) enum_first(anyenum)anyenum enum_last(anyenum)anyenum enum_range(anyenum)anyarray enum_range(anyenum,anyenum)anyarray
exp(float8) extract(text,date)
extract(text,interval) extract(text,time) extract(text,timestamp) extract(text,timestamptz) floor(float8) floor(numeric) format(text,any...)text
format_type(oid,int4) gen_random_uuid() generate_series(int4,int4) generate_series(int4,int4,int4) generate_series(int8,int8)
generate_series(int8,int8,int8) generate_series(numeric,numeric) generate_series(numeric,numeric,numeric)
generate_series(timestamp,timestamp,interval)timestamp generate_series(timestamptz,timestamptz,interval)timestamptz
generate_subscripts(anyarray,int4) has_any_column_privilege(oid,text) has_column_privilege(oid,text,text)
has_database_privilege(oid,text) has_function_privilege(oid,text) has_language_privilege(oid,text) has_schema_privilege(oid,text)
has_sequence_privilege(oid,text) has_table_privilege(oid,text) has_tablespace_privilege(oid,text) has_type_privilege(oid,text)
inet_client_addr() inet_client_port() inet_server_addr() inet_server_port() initcap(text) json_array_elements(json)
json_array_elements_text(json) json_array_length(json) json_build_array(any...)json json_build_object(any...)json json_each(json)
json_each_text(json) json_extract_path(json,text...) json_extract_path_text(json,text...) json_object_keys(json)
json_typeof(json) jsonb_array_elements(jsonb)jsonb jsonb_array_elements_text(jsonb) jsonb_array_length(jsonb)int4
jsonb_build_array(any...)jsonb jsonb_build_object(any...)jsonb jsonb_each(jsonb) jsonb_each_text(jsonb) jsonb_exists(jsonb,text)
jsonb_exists_all(jsonb,text[]) jsonb_exists_any(jsonb,text[]) jsonb_extract_path(jsonb,text...)jsonb
jsonb_extract_path_text(jsonb,text...)text jsonb_insert(jsonb,text[],jsonb) jsonb_insert(jsonb,text[],jsonb,bool)
jsonb_object_keys(jsonb) jsonb_pretty(jsonb) jsonb_set(jsonb,text[],jsonb) jsonb_set(jsonb,text[],jsonb,bool)
jsonb_strip_nulls(jsonb) jsonb_typeof(jsonb)text justify_days(interval) justify_hours(interval) justify_interval(interval) lastval()int8 left(text,int4) length(text) length(bytea) ln(float8) log(float8)
log10(float8) lower(text) lpad(text,int4) lpad(text,int4,text) ltrim(text) ltrim(text,text) make_date(int4,int4,int4)
make_interval(int4,int4,int4,int4,int4,int4,float8) make_time(int4,int4,float8)
make_timestamp(int4,int4,int4,int4,int4,float8) make_timestamptz(int4,int4,int4,int4,int4,float8)
make_timestamptz(int4,int4,int4,int4,int4,float8,text)
mod(int2,int2) mod(int4,int4) mod(int8,int8) mod(numeric,numeric) nextval(text)int8 now() num_nulls(any...)int4
obj_description(oid) obj_description(oid,text) octet_length(text) octet_length(bytea)
pg_advisory_lock(int8)void pg_advisory_lock(int4,int4)void pg_advisory_lock_shared(int8)void pg_advisory_lock_shared(int4,int4)void pg_advisory_xact_lock(int8)void pg_advisory_xact_lock(int4,int4)void pg_advisory_xact_lock_shared(int8)void pg_advisory_xact_lock_shared(int4,int4)void pg_try_advisory_lock(int8)bool pg_try_advisory_lock(int4,int4)bool pg_try_advisory_lock_shared(int8)bool pg_try_advisory_lock_shared(int4,int4)bool pg_try_advisory_xact_lock(int8)bool pg_try_advisory_xact_lock(int4,int4)bool pg_try_advisory_xact_lock_shared(int8)bool pg_try_advisory_xact_lock_shared(int4,int4)bool
pg_advisory_unlock(int8)bool pg_advisory_unlock(int4,int4)bool pg_advisory_unlock_shared(int8)bool pg_advisory_unlock_shared(int4,int4)bool pg_advisory_unlock_all() pg_backend_pid()int4 pg_cancel_backend(int4)
pg_collation_is_visible(oid) pg_conversion_is_visible(oid) pg_database_size(oid) pg_encoding_to_char(int4)
pg_function_is_visible(oid) pg_get_constraintdef(oid) pg_get_constraintdef(oid,bool) pg_get_expr(text,oid)
pg_get_expr(text,oid,bool) pg_get_function_arguments(oid) pg_get_function_identity_arguments(oid) pg_get_function_result(oid)
pg_get_functiondef(oid) pg_get_indexdef(oid) pg_get_indexdef(oid,int4,bool) pg_get_partkeydef(oid) pg_get_ruledef(oid)
pg_get_serial_sequence(text,text) pg_get_statisticsobjdef_columns(oid) pg_get_triggerdef(oid) pg_get_userbyid(oid)
pg_get_viewdef(oid) pg_get_viewdef(text) pg_has_role(oid,text) pg_indexes_size(oid) pg_is_in_recovery()
pg_is_other_temp_schema(oid) pg_listening_channels() pg_notify(text,text)void pg_opclass_is_visible(oid)
pg_operator_is_visible(oid) pg_options_to_table(text) pg_partition_ancestors(oid) pg_relation_is_publishable(oid)
pg_relation_size(oid) pg_size_pretty(int8) pg_sleep(float8)void pg_table_is_visible(oid) pg_table_size(oid) pg_terminate_backend(int4) pg_terminate_backend(int4,int8)
pg_tablespace_location(oid) pg_total_relation_size(oid) pg_type_is_visible(oid) pg_typeof(any)text pi() pow(float8,float8)
power(float8,float8) promql(text,timestamptz,timestamptz,int4)record quote_ident(text) quote_literal(text) quote_nullable(text)
random() regexp_match(text,text) regexp_matches(text,text) regexp_replace(text,text,text) regexp_replace(text,text,text,text)
regexp_split_to_array(text,text) repeat(text,int4) replace(text,text,text) reverse(text) right(text,int4) round(float8)
round(numeric) round(numeric,int4) row_security_active(oid) row_to_json(anyelement) rpad(text,int4) rpad(text,int4,text)
rtrim(text) rtrim(text,text) session_user() set_config(text,text,bool)text setval(text,int8)int8 setval(text,int8,bool)int8
shobj_description(oid,text) sign(float8) sign(numeric) split_part(text,text,int4) sqrt(float8) starts_with(text,text)
statement_timestamp() string_to_array(text,text) string_to_array(text,text,text) string_to_table(text,text) strpos(text,text)
substr(text,int4) substr(text,int4,int4) substring(text,int4) substring(text,int4,int4) to_char(date,text) to_char(interval,text)
to_char(timestamp,text) to_char(timestamptz,text) to_hex(int8) to_json(anyelement) to_jsonb(anyelement)jsonb to_regclass(text)
to_regtype(text) to_timestamp(float8) timezone(text,timestamp) timezone(text,timestamptz) transaction_timestamp() translate(text,text,text) trunc(float8) trunc(numeric)
trunc(numeric,int4) unnest(anyarray)anyelement upper(text) version()text
";

/// Aggregates.
const AGGREGATES: &str = "
array_agg(anyelement)anyarray avg(int2) avg(int4) avg(int8) avg(float4) avg(float8) avg(interval) avg(numeric) bit_and(int2) bit_and(int4)
bit_and(int8) bit_or(int2) bit_or(int4) bit_or(int8) bit_xor(int2) bit_xor(int4) bit_xor(int8) bool_and(bool) bool_or(bool)
corr(float8,float8) count() count(any)int8 covar_pop(float8,float8) covar_samp(float8,float8) every(bool) json_agg(anyelement)
json_object_agg(any,any)json jsonb_agg(anyelement)jsonb jsonb_object_agg(any,any)jsonb max(anyelement)anyelement
min(anyelement)anyelement mode(anyelement)anyelement percentile_cont(float8,float8) percentile_disc(anyelement,float8)anyelement
regr_avgx(float8,float8) regr_avgy(float8,float8) regr_count(float8,float8) regr_intercept(float8,float8) regr_r2(float8,float8)
regr_slope(float8,float8) regr_sxx(float8,float8) regr_sxy(float8,float8) regr_syy(float8,float8) stddev(float8) stddev(numeric)
stddev_pop(float8) stddev_pop(numeric) stddev_samp(float8) stddev_samp(numeric) string_agg(text,text) sum(int2) sum(int4)
sum(int8) sum(float4) sum(float8) sum(interval) sum(numeric) var_pop(float8) var_pop(numeric) var_samp(float8) var_samp(numeric)
variance(float8) variance(numeric)
";

/// Window functions.
const WINDOWS: &str = "
cume_dist()float8 dense_rank()int8 first_value(anyelement)anyelement lag(anyelement)anyelement lag(anyelement,int4)anyelement lag(anyelement,int4,anyelement)anyelement
last_value(anyelement)anyelement lead(anyelement)anyelement lead(anyelement,int4)anyelement lead(anyelement,int4,anyelement)anyelement nth_value(anyelement,int4)anyelement
ntile(int4)int4 percent_rank()float8 rank()int8 row_number()int8
";

/// A listed function.
#[derive(Debug)]
pub(super) struct Proc {
    pub(super) oid: i64,
    pub(super) name: &'static str,
    /// `f` plain, `a` aggregate, `w` window.
    pub(super) kind: &'static str,
    /// Numbers of the argument types.
    pub(super) arguments: Vec<i64>,
    /// True if the last argument can be repeated.
    pub(super) is_variadic: bool,
    pub(super) result: i64,
    pub(super) answers_rows: bool,
}

/// The rows of `pg_proc`.
pub(super) static PROCS: LazyLock<Vec<Proc>> = LazyLock::new(|| {
    let listed = |text: &'static str, kind: &'static str| {
        text.split_ascii_whitespace().filter_map(move |entry| Written::read(entry)?.proc(kind))
    };
    let all = listed(LISTED, "f").chain(listed(AGGREGATES, "a")).chain(listed(WINDOWS, "w"));
    all.zip(FIRST..).map(|(proc, oid)| Proc { oid, ..proc }).collect()
});

/// A parsed entry of the lists.
struct Written {
    name: &'static str,
    arguments: Vec<&'static str>,
    is_variadic: bool,
    result: &'static str,
}

impl Written {
    fn read(entry: &'static str) -> Option<Self> {
        let (name, rest) = entry.split_once('(')?;
        let (arguments, result) = rest.split_once(')')?;
        let is_variadic = arguments.ends_with("...");
        let arguments = arguments.trim_end_matches("...").split(',').filter(|word| !word.is_empty());
        Some(Self { name, arguments: arguments.collect(), is_variadic, result })
    }

    /// Sample argument types to resolve the function with. A variadic argument occurs twice, because some
    /// functions need pairs.
    fn types(&self) -> Vec<Option<Type>> {
        let again = self.arguments.last().filter(|_| self.is_variadic);
        self.arguments.iter().chain(again).map(|word| Some(sample(word))).collect()
    }

    /// The result type according to the binder, and whether the function returns rows.
    fn resolved(&self, kind: &str) -> Option<(Type, bool)> {
        let types = self.types();
        if kind == "a" {
            return Some((aggregate::resolve(self.name, &types).ok()?.ty, false));
        }
        if let Ok(Some((function, _))) = SetFunction::resolve(self.name, &types) {
            let columns = function.columns("");
            return Some((columns.first()?.1, true));
        }
        if let Some(resolved) = functions::resolve(self.name, &types) {
            return Some((resolved.result, false));
        }
        CatalogFunction::resolve(self.name, &types).map(|(_, _, result)| (result, false))
    }

    fn proc(&self, kind: &'static str) -> Option<Proc> {
        let resolved = self.resolved(kind);
        let answers_rows = self.result == "record"
            || SetFunction::is_known(self.name)
            || matches!(resolved, Some((_, true)));
        let result = match self.result {
            "" => i64::from(crate::types::names::oid(resolved?.0)),
            word => number(word)?,
        };
        let arguments = self.arguments.iter().map(|word| number(word)).collect::<Option<_>>()?;
        let (name, is_variadic) = (self.name, self.is_variadic);
        Some(Proc { oid: 0, name, kind, arguments, is_variadic, result, answers_rows })
    }
}

/// The number of a type by its short name.
fn number(word: &str) -> Option<i64> {
    let pseudo = PSEUDO_TYPES.iter().find(|(_, name)| *name == word).map(|(oid, _)| *oid);
    pseudo.or_else(|| type_oid(word))
}

/// A concrete type in place of a pseudo-type.
fn sample(word: &str) -> Type {
    match word {
        "anyarray" => Type::Array(Scalar::Int4),
        "any" | "anyelement" => Type::INT4,
        word => match word.strip_suffix("[]") {
            Some(element) => crate::types::names::named(element).unwrap_or(Type::TEXT).array(),
            None => crate::types::names::named(word).unwrap_or(Type::TEXT),
        },
    }
}

impl Proc {
    pub(super) fn find(oid: i64) -> Option<&'static Self> {
        PROCS.iter().find(|proc| proc.oid == oid)
    }

    /// `pg_get_function_arguments`.
    pub(super) fn shown_arguments(&self) -> String {
        let mut shown: Vec<String> = self.arguments.iter().map(|oid| format_type(*oid, None)).collect();
        if let Some(last) = shown.last_mut().filter(|_| self.is_variadic) {
            *last = format!("VARIADIC {last}");
        }
        shown.join(", ")
    }

    /// `pg_get_function_result`.
    pub(super) fn shown_result(&self) -> String {
        format!("{}{}", if self.answers_rows { "SETOF " } else { "" }, format_type(self.result, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::function::Function;

    #[test]
    fn pg_proc_entries_resolve_to_functions() {
        let entries = [LISTED, AGGREGATES, WINDOWS].map(|text| text.split_ascii_whitespace().count());
        assert_eq!(PROCS.len(), entries.iter().sum::<usize>());
        // Entries with an explicit result are bound elsewhere, or their result depends on the argument types.
        for entry in LISTED.split_ascii_whitespace().filter(|entry| entry.ends_with(')')) {
            assert!(Written::read(entry).unwrap().resolved("f").is_some(), "{entry}");
        }
        for entry in AGGREGATES.split_ascii_whitespace() {
            assert!(Written::read(entry).unwrap().resolved("a").is_some(), "{entry}");
        }
    }

    #[test]
    fn pg_proc_lists_all_functions() {
        let listed = |name: &str| PROCS.iter().any(|proc| proc.name == name);
        for name in CatalogFunction::NAMES.iter().filter(|name| !name.starts_with('*')) {
            let is_word = matches!(*name, "current_catalog" | "current_role" | "user");
            assert!(listed(name) || is_word, "{name}");
        }
        let written = LISTED.split_ascii_whitespace().filter_map(Written::read);
        let resolved: Vec<Function> = written
            .filter_map(|written| functions::resolve(written.name, &written.types()))
            .map(|resolved| resolved.function)
            .collect();
        for function in Function::ALL {
            // Functions of operators and of grammar constructs have no name.
            let is_nameless = function.is_of_operators();
            assert!(resolved.contains(function) != is_nameless, "{function:?}");
        }
    }
}
