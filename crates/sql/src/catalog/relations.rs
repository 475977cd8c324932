//! The relations of `pg_catalog`, with the columns of PostgreSQL 15 that clients read. Columns about absent
//! features (access rights, storage, triggers) have PostgreSQL's value for "none".

use std::collections::HashSet;

use ropewalk::hooks::{LockHolder, LockMode};
use ropewalk::tables::{Array, DefaultValue, Interval, Scalar, Schema, Type, Value, schema_and_name};

use super::BTREE;
use super::Catalog;
use super::ConstraintOf;
use super::DATABASE;
use super::DATABASE_OWNER;
use super::DEFAULT_OID;
use super::HEAP;
use super::INFORMATION_SCHEMA;
use super::IndexOf;
use super::OWNER;
use super::PG_CATALOG;
use super::PUBLIC;
use super::Relation;
use super::SEQUENCE_COLUMNS;
use super::SequenceOf;
use super::ViewOf;
use super::information;
use super::procs::{PROCS, Proc};
use super::projections;
use super::show;
use super::table_oid;
use crate::access::cursors::CursorShape;
use crate::access::peers::Activity;
use crate::expr::Record;
use crate::syntax::names::own;
use crate::types::names::{FIRST_OID, oid as oid_of};
use crate::types::zone::Zone;

/// Numbers and names of the schemas.
pub(crate) const SCHEMAS: [(i64, &str); 3] =
    [(PG_CATALOG, "pg_catalog"), (PUBLIC, "public"), (INFORMATION_SCHEMA, "information_schema")];

/// Base of the numbers of enum labels.
const LABEL_OID: i64 = 0x4000_0000;
/// The language of functions: `internal`.
const INTERNAL: i64 = 12;
/// The collation of all text: by bytes.
const COLLATION: i64 = 950;

/// A row from values of several types.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$(Value::from($value)),*] };
}
pub(crate) use row;

macro_rules! relations {
    ($($name:literal $oid:literal $columns:literal => $rows:expr;)*) => {
        const RELATIONS: &[Relation] = &[$(Relation {
            schema: "pg_catalog", name: $name, oid: $oid, columns: $columns, rows: $rows,
        }),*];
    };
}

/// The schema of a stored name.
pub(crate) fn space(kept: &str) -> String {
    schema_and_name(kept).0.to_owned()
}

fn none(_: &Catalog) -> Vec<Record> {
    Vec::new()
}

relations! {
    "pg_class" 1259 "oid:o relname relnamespace:o reltype:o reloftype:o relowner:o relam:o relfilenode:o reltablespace:o \
        relpages:i reltuples:f relallvisible:i reltoastrelid:o relhasindex:b relisshared:b relpersistence relkind relnatts:s \
        relchecks:s relhasrules:b relhastriggers:b relhassubclass:b relrowsecurity:b relforcerowsecurity:b relispopulated:b \
        relreplident relispartition:b relrewrite:o relfrozenxid:l relminmxid:l relacl:T reloptions:T \
        relpartbound" => classes;
    "pg_attribute" 1249 "attrelid:o attname atttypid:o attstattarget:i attlen:s attnum:s attndims:i attcacheoff:i atttypmod:i \
        attbyval:b attalign attstorage attcompression attnotnull:b atthasdef:b atthasmissing:b attidentity attgenerated \
        attisdropped:b attislocal:b attinhcount:i attcollation:o attacl:T attoptions:T attfdwoptions:T \
        attmissingval" => attributes;
    "pg_type" 1247 "oid:o typname typnamespace:o typowner:o typlen:s typbyval:b typtype typcategory typispreferred:b \
        typisdefined:b typdelim typrelid:o typsubscript typelem:o typarray:o typinput typoutput typreceive typsend typmodin \
        typmodout typanalyze typalign typstorage typnotnull:b typbasetype:o typtypmod:i typndims:i typcollation:o \
        typdefaultbin typdefault typacl:T" => types;
    "pg_namespace" 2615 "oid:o nspname nspowner:o nspacl:T" => |catalog| {
        let owner = |oid: i64| if oid == PUBLIC { DATABASE_OWNER } else { OWNER };
        catalog.schemas().map(|(oid, name)| row![oid, name.to_owned(), owner(oid), Value::Null]).collect()
    };
    "pg_index" 2610 "indexrelid:o indrelid:o indnatts:s indnkeyatts:s indisunique:b indnullsnotdistinct:b indisprimary:b \
        indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b \
        indisreplident:b indkey:S indcollation:O indclass:O indoption:S indexprs indpred" => indexes;
    "pg_constraint" 2606 "oid:o conname connamespace:o contype condeferrable:b condeferred:b convalidated:b conrelid:o \
        contypid:o conindid:o conparentid:o confrelid:o confupdtype confdeltype confmatchtype conislocal:b coninhcount:i \
        connoinherit:b conkey:S confkey:S conpfeqop:O conppeqop:O conffeqop:O confdelsetcols:S conexclop:O \
        conbin" => constraints;
    "pg_attrdef" 2604 "oid:o adrelid:o adnum:s adbin" => defaults;
    "pg_database" 1262 "oid:o datname datdba:o encoding:i datlocprovider datistemplate:b datallowconn:b datconnlimit:i \
        datfrozenxid:l datminmxid:l dattablespace:o datcollate datctype daticulocale datcollversion datacl:T" => |catalog| {
        vec![row![DATABASE, catalog.database.clone(), OWNER, 6_i64, "c", false, true, -1_i64, 0_i64, 0_i64, 1663_i64, "C", "C",
            Value::Null, Value::Null, Value::Null]]
    };
    "pg_roles" 12000 "rolname rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b \
        rolconnlimit:i rolpassword rolvaliduntil:z rolbypassrls:b rolconfig:T oid:o" => |catalog| {
        vec![
            row![catalog.user.clone(), true, true, true, true, true, false, -1_i64, "********", Value::Null, false, Value::Null,
                OWNER],
            row!["pg_database_owner", false, true, false, false, false, false, -1_i64, "********", Value::Null, false,
                Value::Null, DATABASE_OWNER],
        ]
    };
    "pg_user" 12010 "usename usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd valuntil:z \
        useconfig:T" => |catalog| {
        vec![row![catalog.user.clone(), OWNER, true, true, false, false, "********", Value::Null, Value::Null]]
    };
    "pg_auth_members" 1261 "roleid:o member:o grantor:o admin_option:b" => none;
    "pg_settings" 12020 "name setting unit category short_desc extra_desc context vartype source min_val max_val enumvals:T \
        boot_val reset_val sourcefile sourceline:i pending_restart:b" => settings;
    "pg_am" 2601 "oid:o amname amhandler amtype" => |_| {
        vec![row![HEAP, "heap", "heap_tableam_handler", "t"], row![BTREE, "btree", "bthandler", "i"]]
    };
    "pg_collation" 3456 "oid:o collname collnamespace:o collowner:o collprovider collisdeterministic:b collencoding:i \
        collcollate collctype colliculocale collversion" => |_| {
        let row = |oid: i64, name: &str| {
            row![oid, name.to_owned(), PG_CATALOG, OWNER, "c", true, -1_i64, "C", "C", Value::Null, Value::Null]
        };
        vec![row(100, "default"), row(COLLATION, "C")]
    };
    "pg_description" 2609 "objoid:o classoid:o objsubid:i description" => |catalog| {
        let row = |(class, object, column, comment): (i64, i64, i64, &str)| row![object, class, column, comment.to_owned()];
        catalog.descriptions().map(row).collect()
    };
    "pg_shdescription" 2396 "objoid:o classoid:o description" => |catalog| {
        catalog.database_comment().map(|comment| row![DATABASE, 1262_i64, comment.to_owned()]).into_iter().collect()
    };
    "pg_tables" 12030 "schemaname tablename tableowner tablespace hasindexes:b hasrules:b hastriggers:b rowsecurity:b" => |catalog| {
        let row = |schema: &std::sync::Arc<ropewalk::tables::Schema>| {
            let indexed = catalog.indexes_of(schema).next().is_some();
            row![space(schema.name()), schema.own_name().to_owned(), catalog.user.clone(), Value::Null, indexed, false,
                !schema.foreign_keys().is_empty(), false]
        };
        catalog.tables.iter().map(row).collect()
    };
    "pg_statio_all_tables" 12990 "relid:o schemaname relname heap_blks_read:l heap_blks_hit:l idx_blks_read:l idx_blks_hit:l" => |catalog| {
        let row = |schema: &std::sync::Arc<ropewalk::tables::Schema>| {
            row![table_oid(schema), space(schema.name()), schema.own_name().to_owned(), Value::Null, Value::Null, Value::Null, Value::Null]
        };
        catalog.tables.iter().map(row).collect()
    };
    "pg_indexes" 12040 "schemaname tablename indexname tablespace indexdef" => |catalog| {
        let row = |index: IndexOf<'_>| {
            row![space(index.table().name()), index.table().own_name().to_owned(), index.name().to_owned(), Value::Null,
                catalog.index_def(index, false)]
        };
        catalog.indexes().map(row).collect()
    };
    "pg_views" 12050 "schemaname viewname viewowner definition" => |catalog| {
        let row = |view: &ViewOf| {
            row![space(&view.name), own(&view.name).to_owned(), catalog.user.clone(), format!(" {};", catalog.view_text(view).0)]
        };
        catalog.views.iter().map(row).collect()
    };
    "pg_matviews" 12060 "schemaname matviewname matviewowner tablespace hasindexes:b ispopulated:b definition" => none;
    "pg_sequences" 12070 "schemaname sequencename sequenceowner data_type start_value:l min_value:l max_value:l increment_by:l \
        cycle:b cache_size:l last_value:l" => |catalog| {
        let row = |sequence: &SequenceOf| {
            let steps = sequence.steps;
            row![space(sequence.name()), own(sequence.name()).to_owned(), catalog.user.clone(), show::format_type(sequence.type_oid(), None),
                steps.start, steps.least, steps.greatest, steps.increment, steps.cycles, 1_i64,
                sequence.last.map_or(Value::Null, Value::Int8)]
        };
        catalog.sequences().map(row).collect()
    };
    "pg_stat_activity" 12080 "datid:o datname pid:i leader_pid:i usesysid:o usename application_name client_addr \
        client_hostname client_port:i backend_start:z xact_start:z query_start:z state_change:z wait_event_type wait_event \
        state backend_xid:l backend_xmin:l query_id:l query backend_type" => |catalog| catalog.peers.activity().into_iter().map(activity_row).collect();
    "pg_proc" 1255 "oid:o proname pronamespace:o proowner:o prolang:o procost:f prorows:f provariadic:o prokind prosecdef:b \
        proleakproof:b proisstrict:b proretset:b provolatile proparallel pronargs:s pronargdefaults:s prorettype:o \
        proargtypes:O proallargtypes:O proargmodes:T proargnames:T prosrc probin proconfig:T proacl:T" => functions;
    "pg_enum" 3501 "oid:o enumtypid:o enumsortorder:f enumlabel" => labels;
    "pg_range" 3541 "rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o rngcanonical rngsubdiff" => none;
    "pg_inherits" 2611 "inhrelid:o inhparent:o inhseqno:i inhdetachpending:b" => none;
    "pg_trigger" 2620 "oid:o tgrelid:o tgparentid:o tgname tgfoid:o tgtype:s tgenabled tgisinternal:b tgconstrrelid:o \
        tgconstrindid:o tgconstraint:o tgdeferrable:b tginitdeferred:b tgnargs:s tgattr:S tgargs tgqual tgoldtable \
        tgnewtable" => none;
    "pg_rewrite" 2618 "oid:o rulename ev_class:o ev_type ev_enabled is_instead:b ev_qual ev_action" => |catalog| {
        let row = |view: &ViewOf| row![view.rule_oid(), "_RETURN", view.oid(), "1", "O", true, "<>", ""];
        catalog.views.iter().map(row).collect()
    };
    "pg_depend" 2608 "classid:o objid:o objsubid:i refclassid:o refobjid:o refobjsubid:i deptype" => dependencies;
    "pg_shdepend" 1214 "dbid:o classid:o objid:o objsubid:i refclassid:o refobjid:o deptype" => none;
    "pg_policy" 3256 "oid:o polname polrelid:o polcmd polpermissive:b polroles:O polqual polwithcheck" => none;
    "pg_policies" 12090 "schemaname tablename policyname permissive roles:T cmd qual with_check" => none;
    "pg_statistic_ext" 3381 "oid:o stxrelid:o stxname stxnamespace:o stxowner:o stxstattarget:i stxkeys:S stxkind:T \
        stxexprs" => none;
    "pg_publication" 6104 "oid:o pubname pubowner:o puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b \
        pubviaroot:b" => none;
    "pg_publication_rel" 6106 "oid:o prpubid:o prrelid:o prqual prattrs:S" => none;
    "pg_publication_namespace" 6237 "oid:o pnpubid:o pnnspid:o" => none;
    "pg_publication_tables" 12100 "pubname schemaname tablename attnames:T rowfilter" => none;
    "pg_subscription" 6100 "oid:o subdbid:o subname subowner:o subenabled:b \
        subbinary:b substream:b subtwophasestate subdisableonerr:b subconninfo subslotname subsynccommit \
        subpublications:T" => none;
    "pg_extension" 3079 "oid:o extname extowner:o extnamespace:o extrelocatable:b extversion extconfig:O extcondition:T" => none;
    "pg_available_extensions" 12110 "name default_version installed_version comment" => none;
    "pg_language" 2612 "oid:o lanname lanowner:o lanispl:b lanpltrusted:b lanplcallfoid:o laninline:o lanvalidator:o \
        lanacl:T" => |_| {
        vec![row![INTERNAL, "internal", OWNER, false, false, 0_i64, 0_i64, 0_i64, Value::Null]]
    };
    "pg_tablespace" 1213 "oid:o spcname spcowner:o spcacl:T spcoptions:T" => |_| {
        vec![row![1663_i64, "pg_default", OWNER, Value::Null, Value::Null]]
    };
    "pg_largeobject_metadata" 2995 "oid:o lomowner:o lomacl:T" => none;
    "pg_foreign_table" 3118 "ftrelid:o ftserver:o ftoptions:T" => none;
    "pg_foreign_server" 1417 "oid:o srvname srvowner:o srvfdw:o srvtype srvversion srvacl:T srvoptions:T" => none;
    "pg_partitioned_table" 3350 "partrelid:o partstrat partnatts:s partdefid:o partattrs:S partclass:O partcollation:O \
        partexprs" => none;
    "pg_event_trigger" 3466 "oid:o evtname evtevent evtowner:o evtfoid:o evtenabled evttags:T" => none;
    "pg_operator" 2617 "oid:o oprname oprnamespace:o oprowner:o oprkind oprcanmerge:b oprcanhash:b oprleft:o oprright:o \
        oprresult:o oprcom:o oprnegate:o oprcode:o oprrest oprjoin" => none;
    "pg_opclass" 2616 "oid:o opcmethod:o opcname opcnamespace:o opcowner:o opcfamily:o opcintype:o opcdefault:b \
        opckeytype:o" => none;
    "pg_cast" 2605 "oid:o castsource:o casttarget:o castfunc:o castcontext castmethod" => none;
    "pg_opfamily" 2753 "oid:o opfmethod:o opfname opfnamespace:o opfowner:o" => none;
    "pg_amop" 2602 "oid:o amopfamily:o amoplefttype:o amoprighttype:o amopstrategy:s amoppurpose amopopr:o amopmethod:o \
        amopsortfamily:o" => none;
    "pg_amproc" 2603 "oid:o amprocfamily:o amproclefttype:o amprocrighttype:o amprocnum:s amproc" => none;
    "pg_aggregate" 2600 "aggfnoid:o aggkind aggnumdirectargs:s" => none;
    "pg_conversion" 2607 "oid:o conname connamespace:o conowner:o conforencoding:i contoencoding:i conproc condefault:b" => none;
    "pg_transform" 3576 "oid:o trftype:o trflang:o trffromsql:o trftosql:o" => none;
    "pg_ts_parser" 3601 "oid:o prsname prsnamespace:o prsstart prstoken prsend prsheadline prslextype" => none;
    "pg_ts_template" 3764 "oid:o tmplname tmplnamespace:o tmplinit tmpllexize" => none;
    "pg_ts_dict" 3600 "oid:o dictname dictnamespace:o dictowner:o dicttemplate:o dictinitoption" => none;
    "pg_ts_config" 3602 "oid:o cfgname cfgnamespace:o cfgowner:o cfgparser:o" => none;
    "pg_foreign_data_wrapper" 2328 "oid:o fdwname fdwowner:o fdwhandler:o fdwvalidator:o fdwacl:T fdwoptions:T" => none;
    "pg_default_acl" 826 "oid:o defaclrole:o defaclnamespace:o defaclobjtype defaclacl:T" => none;
    "pg_init_privs" 3394 "objoid:o classoid:o objsubid:i privtype initprivs:T" => none;
    "pg_sequence" 2224 "seqrelid:o seqtypid:o seqstart:l seqincrement:l seqmax:l seqmin:l seqcache:l seqcycle:b" => |catalog| {
        let row = |sequence: &SequenceOf| {
            let steps = sequence.steps;
            row![sequence.oid(), sequence.type_oid(), steps.start, steps.increment, steps.greatest, steps.least, 1_i64,
                steps.cycles]
        };
        catalog.sequences().map(row).collect()
    };
    "pg_seclabels" 12120 "objoid:o classoid:o objsubid:i objtype objnamespace:o objname provider label" => none;
    "pg_db_role_setting" 2964 "setdatabase:o setrole:o setconfig:T" => none;
    "pg_prepared_xacts" 12130 "transaction:l gid prepared:z owner database" => none;
    "pg_cursors" 12160 "name statement is_holdable:b is_binary:b is_scrollable:b creation_time:z" => |catalog| {
        let row = |(name, cursor): (&String, &CursorShape)| {
            row![name.clone(), cursor.statement.clone(), cursor.is_held, cursor.is_binary, cursor.scrolls,
                Value::Timestamptz(cursor.since)]
        };
        catalog.cursors.iter().map(row).collect()
    };
    "pg_locks" 12140 "locktype database:o relation:o page:i tuple:s virtualxid transactionid:l classid:o objid:o objsubid:s \
        virtualtransaction pid:i mode granted:b fastpath:b waitstart:z" => locks;
    "pg_timezone_names" 12150 "name abbrev utc_offset:v is_dst:b" => |catalog| {
        let now = catalog.db.engine().env().clock.wall_micros();
        let row = |name: String| {
            let zone = Zone::named(&name)?;
            let offset = i64::from(zone.offset_at(now));
            let ahead = Interval { months: 0, days: 0, micros: offset * 1_000_000 };
            Some(row![name, zone.abbreviation_at(now), Value::Interval(ahead), zone.is_summer_at(now)])
        };
        Zone::all().into_iter().filter_map(row).collect()
    };
}

/// All relations of all catalogs.
pub(crate) fn all() -> impl Iterator<Item = &'static Relation> {
    RELATIONS.iter().chain(information::RELATIONS).chain(projections::RELATIONS)
}

/// An array of smallint.
pub(crate) fn vector(numbers: impl IntoIterator<Item = i16>) -> Value<'static> {
    let items: Vec<Value<'static>> = numbers.into_iter().map(Value::Int2).collect();
    Array::new(Scalar::Int2, items).map_or(Value::Null, Value::Array)
}

fn oids(numbers: impl IntoIterator<Item = i64>) -> Value<'static> {
    let items: Vec<Value<'static>> = numbers.into_iter().map(Value::Int8).collect();
    Array::new(Scalar::Int8, items).map_or(Value::Null, Value::Array)
}

fn length(numbers: usize) -> i64 {
    i64::try_from(numbers).unwrap_or(i64::MAX)
}

/// A row of `pg_class`.
struct Class<'c> {
    oid: i64,
    name: &'c str,
    schema: i64,
    kind: &'static str,
    method: i64,
    width: usize,
    checks: usize,
    is_indexed: bool,
    refers: bool,
}

impl<'c> Class<'c> {
    fn plain(
        oid: i64,
        (schema, name): (i64, &'c str),
        kind: &'static str,
        method: i64,
        width: usize,
    ) -> Self {
        Self { oid, name, schema, kind, method, width, checks: 0, is_indexed: false, refers: false }
    }

    fn row(&self) -> Record {
        let Self { oid, name, schema, kind, method, width, checks, is_indexed, refers } = *self;
        let (has_rule, replica) = (kind == "v", if kind == "r" { "d" } else { "n" });
        let file = if kind == "v" { 0 } else { oid };
        // There are no row types, but some tools recognize tables and views by a nonzero one.
        let of_rows = if matches!(kind, "r" | "v") { oid } else { 0 };
        row![
            oid,
            name.to_owned(),
            schema,
            of_rows,
            0_i64,
            OWNER,
            method,
            file,
            0_i64,
            0_i64,
            Value::Float4(-1.0),
            0_i64,
            0_i64,
            is_indexed,
            false,
            "p",
            kind,
            length(width),
            length(checks),
            has_rule,
            refers,
            false,
            false,
            false,
            true,
            replica,
            false,
            0_i64,
            0_i64,
            0_i64,
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    }
}

fn classes(catalog: &Catalog) -> Vec<Record> {
    let mut rows = Vec::new();
    let keys = || catalog.tables.iter().flat_map(|schema| schema.foreign_keys());
    let referred: HashSet<u32> = keys().map(|key| key.parent()).collect();
    // In PostgreSQL a foreign key has triggers on both tables.
    let refers = |schema: &Schema| !schema.foreign_keys().is_empty() || referred.contains(&schema.id());
    for schema in &catalog.tables {
        let space = catalog.schema_of(schema.name());
        let checks =
            schema.checks().iter().filter(|check| show::length_bound(schema, check).is_none()).count();
        let table =
            Class::plain(table_oid(schema), (space, schema.own_name()), "r", HEAP, schema.columns().len());
        let is_indexed = catalog.indexes_of(schema).next().is_some();
        rows.push(Class { checks, is_indexed, refers: refers(schema), ..table }.row());
        for index in catalog.indexes_of(schema) {
            rows.push(
                Class::plain(index.oid(), (space, index.name()), "i", BTREE, index.columns().len()).row(),
            );
        }
    }
    for sequence in catalog.sequences() {
        let name = (catalog.schema_of(sequence.name()), own(sequence.name()));
        rows.push(Class::plain(sequence.oid(), name, "S", 0, 3).row());
    }
    for view in &catalog.views {
        let name = (catalog.schema_of(&view.name), own(&view.name));
        rows.push(Class::plain(view.oid(), name, "v", 0, view.columns.len()).row());
    }
    rows
}

/// Identity columns own their sequences; the rules of views depend on the relations that they read.
fn dependencies(catalog: &Catalog) -> Vec<Record> {
    const CLASS: i64 = 1259;
    const RULE: i64 = 2618;
    const DEFAULT: i64 = 2604;
    let mut rows = Vec::new();
    for schema in &catalog.tables {
        for (place, column) in schema.columns().iter().enumerate() {
            let DefaultValue::Next(number) = column.default_value() else { continue };
            if let Some(sequence) = catalog.sequences().find(|known| known.sequence.number == *number) {
                rows.push(row![
                    DEFAULT,
                    default_oid(schema, place),
                    0_i64,
                    CLASS,
                    sequence.oid(),
                    0_i64,
                    "n"
                ]);
            }
        }
    }
    for sequence in catalog.sequences() {
        let Some((table, place)) = &sequence.owner else { continue };
        let kind = if sequence.sequence.is_identity { "i" } else { "a" };
        rows.push(row![CLASS, sequence.oid(), 0_i64, CLASS, table_oid(table), length(place + 1), kind]);
    }
    for view in &catalog.views {
        rows.push(row![RULE, view.rule_oid(), 0_i64, CLASS, view.oid(), 0_i64, "i"]);
        let (_, mut read) = catalog.view_text(view);
        read.sort();
        read.dedup();
        for name in read {
            if let Some(oid) = catalog.kept_oid(&name) {
                rows.push(row![RULE, view.rule_oid(), 0_i64, CLASS, oid, 0_i64, "n"]);
            }
        }
    }
    rows
}

fn is_collated(ty: Type) -> bool {
    matches!(ty, Type::TEXT | Type::Array(Scalar::Text))
}

/// PostgreSQL's size of a type in bytes; -1 when it varies.
fn width(ty: Type) -> i64 {
    match ty {
        Type::BOOL => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::DATE | Type::Scalar(Scalar::Enum(_)) => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::UUID | Type::INTERVAL => 16,
        _ => -1,
    }
}

fn functions(_: &Catalog) -> Vec<Record> {
    let row = |proc: &Proc| {
        let variadic = proc.arguments.last().copied().filter(|_| proc.is_variadic).unwrap_or(0);
        row![
            proc.oid,
            proc.name,
            PG_CATALOG,
            OWNER,
            INTERNAL,
            Value::Float4(1.0),
            Value::Float4(if proc.answers_rows { 1000.0 } else { 0.0 }),
            variadic,
            proc.kind,
            false,
            false,
            false,
            proc.answers_rows,
            "v",
            "u",
            length(proc.arguments.len()),
            0_i64,
            proc.result,
            oids(proc.arguments.iter().copied()),
            Value::Null,
            Value::Null,
            Value::Null,
            proc.name,
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    };
    PROCS.iter().map(row).collect()
}

/// Holders of row locks, and waiters. A transaction is identified by the number of its locks.
fn locks(catalog: &Catalog) -> Vec<Record> {
    let of_object = |object: u32| {
        let rows = catalog.tables.iter().find(|schema| schema.rows_object() == object);
        rows.map_or(FIRST_OID + i64::from(object), |schema| table_oid(schema))
    };
    let row = |lock: LockHolder| {
        let object = catalog.db.tables().object_of(lock.keyspace, &lock.key);
        let mode = match lock.mode {
            LockMode::KeyShare => "AccessShareLock",
            LockMode::Share => "RowShareLock",
            LockMode::NoKeyUpdate => "ExclusiveLock",
            LockMode::Update => "AccessExclusiveLock",
        };
        let nothing = Value::Null;
        row![
            "tuple",
            DATABASE,
            object.map(of_object),
            nothing.clone(),
            nothing.clone(),
            nothing.clone(),
            nothing.clone(),
            nothing.clone(),
            nothing.clone(),
            nothing.clone(),
            lock.owner.to_string(),
            (lock.label != 0).then_some(i64::from(lock.label)),
            mode,
            lock.is_granted,
            false,
            nothing,
        ]
    };
    catalog.db.engine().locks().into_iter().map(row).collect()
}

/// A row of `pg_attribute`.
struct Attribute<'c> {
    relation: i64,
    name: &'c str,
    ty: Type,
    oid: i64,
    modifier: i64,
    number: usize,
    is_required: bool,
    has_default: bool,
    identity: &'static str,
}

impl<'c> Attribute<'c> {
    fn of(relation: i64, name: &'c str, ty: Type, number: usize) -> Self {
        let (oid, modifier) = show::type_and_modifier(ty);
        let (is_required, has_default, identity) = (false, false, "");
        Self { relation, name, ty, oid, modifier, number, is_required, has_default, identity }
    }

    fn row(&self) -> Record {
        let width = width(self.ty);
        let varies = width < 0;
        let statistics = -1_i64;
        row![
            self.relation,
            self.name.to_owned(),
            self.oid,
            statistics,
            width,
            length(self.number),
            i64::from(matches!(self.ty, Type::Array(_))),
            -1_i64,
            self.modifier,
            !varies,
            if width == 8 { "d" } else { "i" },
            if varies { "x" } else { "p" },
            "",
            self.is_required,
            self.has_default,
            false,
            self.identity,
            "",
            false,
            true,
            0_i64,
            if is_collated(self.ty) { 100 } else { 0_i64 },
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    }
}

fn attributes(catalog: &Catalog) -> Vec<Record> {
    let mut rows = Vec::new();
    for schema in &catalog.tables {
        let relation = table_oid(schema);
        for (place, column) in schema.columns().iter().enumerate() {
            let attribute = Attribute::of(relation, column.name(), column.column_type(), place + 1);
            let (oid, modifier) = show::type_of(schema, place, column);
            let (is_required, has_default) = (!column.is_nullable(), catalog.default(column).is_some());
            let identity = show::identity(column);
            rows.push(Attribute { oid, modifier, is_required, has_default, identity, ..attribute }.row());
        }
        for index in catalog.indexes_of(schema) {
            for number in 1..=index.columns().len() {
                let name = catalog.index_column(index, number).unwrap_or_default();
                rows.push(Attribute::of(index.oid(), &name, index.column_type(number), number).row());
            }
        }
    }
    for (view, columns) in catalog.views() {
        for (((name, ty), number), declared) in columns.iter().zip(1..).zip(catalog.declared(view)) {
            let mut attribute = Attribute::of(view.oid(), name, *ty, number);
            if let Some(declared) = declared {
                (attribute.oid, attribute.modifier) = (declared.oid, declared.modifier);
            }
            rows.push(attribute.row());
        }
    }
    for sequence in catalog.sequences() {
        for ((name, ty), number) in SEQUENCE_COLUMNS.into_iter().zip(1..) {
            rows.push(Attribute::of(sequence.oid(), name, ty, number).row());
        }
    }
    rows
}

/// The labels of enum types. A label's number is derived from its type's number and its place.
fn labels(catalog: &Catalog) -> Vec<Record> {
    let mut rows = Vec::new();
    for known in &catalog.enums {
        for (place, label) in known.labels().enumerate() {
            let oid = LABEL_OID + i64::from(known.number()) * 1024 + length(place);
            let order = Value::Float4(place as f32 + 1.0);
            rows.push(row![
                oid & 0xffff_ffff,
                i64::from(oid_of(known.column_type())),
                order,
                label.to_owned()
            ]);
        }
    }
    rows
}

/// A row of `pg_type`.
struct Shown<'c> {
    oid: i64,
    name: String,
    schema: i64,
    width: i64,
    kind: &'static str,
    category: &'c str,
    element: i64,
    array: i64,
    /// Prefix of the names of its input and output functions.
    functions: String,
    collation: i64,
}

impl Shown<'_> {
    fn row(self) -> Record {
        let varies = self.width < 0;
        let function = |suffix: &str| format!("{}{suffix}", self.functions);
        row![
            self.oid,
            self.name,
            self.schema,
            OWNER,
            self.width,
            !varies,
            self.kind,
            self.category.to_owned(),
            false,
            true,
            ",",
            0_i64,
            "-",
            self.element,
            self.array,
            function("in"),
            function("out"),
            function("recv"),
            function("send"),
            "-",
            "-",
            "-",
            if self.width == 8 { "d" } else { "i" },
            if varies { "x" } else { "p" },
            false,
            0_i64,
            -1_i64,
            0_i64,
            self.collation,
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    }
}

fn types(catalog: &Catalog) -> Vec<Record> {
    let category = |name: &str| match name {
        "bool" => "B",
        "int2" | "int4" | "int8" | "float4" | "float8" | "numeric" | "oid" => "N",
        "date" | "time" | "timestamp" | "timestamptz" => "D",
        "interval" => "T",
        "text" | "varchar" | "bpchar" | "name" => "S",
        _ => "U",
    };
    let mut rows = Vec::new();
    for (one, name, _, many) in show::TYPES {
        let width = match name {
            "bool" | "char" => 1_i64,
            "int2" => 2,
            "int4" | "float4" | "date" | "oid" => 4,
            "int8" | "float8" | "time" | "timestamp" | "timestamptz" => 8,
            "uuid" | "interval" => 16,
            "name" => 64,
            _ => -1,
        };
        let collation = if category(name) == "S" { 100 } else { 0_i64 };
        let plain = Shown {
            oid: one,
            name: name.to_owned(),
            schema: PG_CATALOG,
            width,
            kind: "b",
            category: category(name),
            element: 0,
            array: many,
            functions: name.to_owned(),
            collation,
        };
        let (name, functions) = (format!("_{name}"), format!("_{name}"));
        let array =
            Shown { oid: many, name, width: -1, category: "A", element: one, array: 0, functions, ..plain };
        rows.extend([plain.row(), array.row()]);
    }
    for known in &catalog.enums {
        let ty = known.column_type();
        let (one, many) = (i64::from(oid_of(ty)), i64::from(oid_of(ty.array())));
        let plain = Shown {
            oid: one,
            name: known.own_name().to_owned(),
            schema: catalog.schema_of(known.name()),
            width: 4,
            kind: "e",
            category: "E",
            element: 0,
            array: many,
            functions: "enum_".into(),
            collation: 0,
        };
        let array = Shown {
            oid: many,
            name: format!("_{}", known.own_name()),
            width: -1,
            kind: "b",
            category: "A",
            element: one,
            array: 0,
            functions: "array_".into(),
            ..plain
        };
        rows.extend([plain.row(), array.row()]);
    }
    rows
}

fn indexes(catalog: &Catalog) -> Vec<Record> {
    let row = |index: IndexOf<'_>| {
        let numbers = index.columns();
        let width = numbers.len();
        let (valid, orders, filter) = match index {
            IndexOf::Key(_) => (true, vec![0; width], None),
            IndexOf::Secondary(schema, index) => {
                let order = |column: &ropewalk::tables::IndexColumn| {
                    i16::from(column.order.descending) | i16::from(column.order.nulls_first) << 1
                };
                let orders = index.columns().iter().map(order).collect();
                (index.is_ready(), orders, index.filter().map(|filter| catalog.expr(schema, filter)))
            }
        };
        let expressions: Vec<String> = numbers
            .iter()
            .zip(1..)
            .filter(|(column, _)| **column == 0)
            .filter_map(|(_, number)| catalog.index_column(index, number))
            .collect();
        let expressions = (!expressions.is_empty()).then(|| expressions.join(", "));
        row![
            index.oid(),
            table_oid(index.table()),
            length(width),
            length(width),
            index.is_unique(),
            false,
            matches!(index, IndexOf::Key(_)),
            false,
            true,
            false,
            valid,
            false,
            valid,
            true,
            false,
            vector(numbers),
            oids(vec![0; width]),
            oids(vec![0; width]),
            vector(orders),
            expressions,
            filter,
        ]
    };
    catalog.indexes().map(row).collect()
}

fn constraints(catalog: &Catalog) -> Vec<Record> {
    let row = |constraint: ConstraintOf<'_>| {
        let table = constraint.table();
        let mut index_oid = 0;
        let (mut parent, mut referred, mut actions) = (0, Value::Null, (" ", " ", " "));
        let mut bound: Option<String> = None;
        let numbers;
        let kind = match &constraint {
            ConstraintOf::Index(index) => {
                index_oid = index.oid();
                numbers = index.columns();
                if matches!(index, IndexOf::Key(_)) { "p" } else { "u" }
            }
            ConstraintOf::Foreign(schema, _, key) => {
                numbers = show::numbers(schema, key.columns());
                if let Some(other) = catalog.tables.iter().find(|table| table.id() == key.parent()) {
                    parent = table_oid(other);
                    let wanted = show::numbers(other, key.parent_columns());
                    let serves = |index: &IndexOf<'_>| index.is_unique() && index.columns() == wanted;
                    index_oid = catalog.indexes_of(other).find(serves).map_or(0, |index| index.oid());
                    referred = vector(wanted);
                }
                actions = (show::action_letter(key.on_update()), show::action_letter(key.on_delete()), "s");
                "f"
            }
            ConstraintOf::Check(schema, _, check) => {
                let mut read = Vec::new();
                for (place, column) in schema.columns().iter().enumerate() {
                    if check.expr().reads(column.id()) {
                        read.push(i16::try_from(place + 1).unwrap_or(i16::MAX));
                    }
                }
                numbers = read;
                bound = Some(catalog.expr(schema, check.expr()));
                "c"
            }
        };
        row![
            constraint.oid(),
            constraint.name().to_owned(),
            catalog.schema_of(table.name()),
            kind,
            false,
            false,
            true,
            table_oid(table),
            0_i64,
            index_oid,
            0_i64,
            parent,
            actions.0,
            actions.1,
            actions.2,
            true,
            0_i64,
            kind != "c",
            vector(numbers),
            referred,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            bound,
        ]
    };
    catalog.constraints().map(row).collect()
}

fn default_oid(schema: &Schema, place: usize) -> i64 {
    DEFAULT_OID + i64::from(schema.id()) * 2048 + length(place)
}

fn defaults(catalog: &Catalog) -> Vec<Record> {
    let mut rows = Vec::new();
    for schema in &catalog.tables {
        for (place, column) in schema.columns().iter().enumerate() {
            if let Some(default) = catalog.default(column) {
                rows.push(row![default_oid(schema, place), table_oid(schema), length(place + 1), default]);
            }
        }
    }
    rows
}

fn settings(catalog: &Catalog) -> Vec<Record> {
    let row = |(name, value, about): (&str, String, &str)| {
        row![
            name.to_owned(),
            value.clone(),
            Value::Null,
            "",
            about.to_owned(),
            Value::Null,
            "user",
            "string",
            "session",
            Value::Null,
            Value::Null,
            Value::Null,
            value.clone(),
            value,
            Value::Null,
            Value::Null,
            false,
        ]
    };
    catalog.settings.all().into_iter().map(row).collect()
}

/// A row of `pg_stat_activity`.
fn activity_row(activity: Activity) -> Record {
    let Activity { number, user, database, application, doing } = activity;
    let time = |micros: Option<i64>| micros.map_or(Value::Null, Value::Timestamptz);
    let word = |word: Option<&'static str>| word.map_or(Value::Null, Value::text);
    let own = doing.as_ref();
    let waits = own.is_some_and(|doing| doing.waits);
    let address = own.and_then(|doing| doing.client.as_ref()).map(|(address, _)| address.clone());
    // PostgreSQL reports port -1 for a client that is not connected by TCP.
    let port = own.map(|doing| doing.client.as_ref().map_or(-1, |(_, port)| i32::from(*port)));
    vec![
        Value::Int8(DATABASE),
        Value::text(database),
        Value::Int4(number),
        Value::Null,
        Value::Int8(OWNER),
        Value::text(user),
        Value::text(application),
        address.map_or(Value::Null, Value::text),
        Value::Null,
        port.map_or(Value::Null, Value::Int4),
        time(own.map(|doing| doing.since)),
        time(own.and_then(|doing| doing.transaction_since)),
        time(own.and_then(|doing| doing.query_since)),
        time(own.map(|doing| doing.state_since)),
        word(waits.then_some("Lock")),
        word(waits.then_some("tuple")),
        word(own.map(|doing| doing.state)),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::text(own.map_or("<insufficient privilege>".to_owned(), |doing| doing.query.to_string())),
        word(own.map(|_| "client backend")),
    ]
}
