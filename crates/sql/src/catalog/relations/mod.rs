//! The relations of `pg_catalog`, with the columns of PostgreSQL 15 that clients read. Columns about absent
//! features (access rights, storage, triggers) have PostgreSQL's value for "none".

mod state;
mod structure;
mod types;

use ropewalk::tables::{Array, Interval, Scalar, Value, schema_and_name};

use crate::access::cursors::CursorShape;
use crate::catalog::{
    BTREE, Catalog, DATABASE, DATABASE_OWNER, HEAP, INFORMATION_SCHEMA, IndexOf, OWNER, PG_CATALOG, PUBLIC,
    Relation, SequenceOf, ViewOf, collations, extensions, information, operator_classes, projections, show,
    table_oid,
};
use crate::expr::Record;
use crate::syntax::names::own;
use crate::types::zone::Zone;

use state::{activity_row, locks, settings};
use structure::{attributes, classes, constraints, defaults, dependencies, indexes};
use types::{functions, labels, types};

/// Numbers and names of the schemas.
pub(crate) const SCHEMAS: [(i64, &str); 3] =
    [(PG_CATALOG, "pg_catalog"), (PUBLIC, "public"), (INFORMATION_SCHEMA, "information_schema")];

/// The language of functions: `internal`.
const INTERNAL: i64 = 12;

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
        collcollate collctype colliculocale collversion" => |_| collations::rows();
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
            row![space(schema.name()), schema.unqualified_name().to_owned(), catalog.user.clone(), Value::Null, indexed, false,
                !schema.foreign_keys().is_empty(), false]
        };
        catalog.tables.iter().map(row).collect()
    };
    "pg_statio_all_tables" 12990 "relid:o schemaname relname heap_blks_read:l heap_blks_hit:l idx_blks_read:l idx_blks_hit:l" => |catalog| {
        let row = |schema: &std::sync::Arc<ropewalk::tables::Schema>| {
            row![table_oid(schema), space(schema.name()), schema.unqualified_name().to_owned(), Value::Null, Value::Null, Value::Null, Value::Null]
        };
        catalog.tables.iter().map(row).collect()
    };
    "pg_indexes" 12040 "schemaname tablename indexname tablespace indexdef" => |catalog| {
        let row = |index: IndexOf<'_>| {
            row![space(index.table().name()), index.table().unqualified_name().to_owned(), index.name().to_owned(), Value::Null,
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
    "pg_extension" 3079 "oid:o extname extowner:o extnamespace:o extrelocatable:b extversion extconfig:O extcondition:T" => |_| extensions::installed();
    "pg_available_extensions" 12110 "name default_version installed_version comment" => |_| extensions::available();
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
        opckeytype:o" => |_| operator_classes::rows();
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
