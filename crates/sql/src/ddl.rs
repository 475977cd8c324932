//! CREATE, ALTER, DROP and TRUNCATE: statements to the definitions of the tables model, inside the transaction.
//!
//! Expressions of checks and indexes are bound like any other and then said in the model's own, smaller language, so that the
//! model can judge rows without SQL. What it cannot say is refused.

use std::sync::LazyLock;

use ropewalk::Database;
use ropewalk::Transaction;
use ropewalk::tables::{
    Action, Binary, ColumnDef, DefaultValue, Expr as TableExpr, ForeignKeyDef, Function as TableFunction,
    Identity, IndexDef, KeyOrder, Schema, Steps, TableDef, TablesError, TablesRead, Type, Unary,
};
use sqlparser::ast;

use crate::access::Access;
use crate::arith::{Arith, Compare};
use crate::bind::Binder;
use crate::cast::Strength;
use crate::error::{Result, SqlError, state};
use crate::expr::{Context, Expr};
use crate::function::Function;
use crate::parse::{self, Statement};
use crate::plan::{Planner, nothing_else};
use crate::prepared::Outcome;
use crate::scope::{Params, Scope, folded, table_name};
use crate::sequences::Asks;
use crate::types::{rank, with_modifiers};
use crate::utility::{AddIdentity, SequenceChange, Utility};

static CREATE_TABLE: LazyLock<Option<ast::CreateTable>> =
    LazyLock::new(|| match parse::template("CREATE TABLE t ()")? {
        ast::Statement::CreateTable(create) => Some(create),
        _ => None,
    });
static CREATE_INDEX: LazyLock<Option<ast::CreateIndex>> =
    LazyLock::new(|| match parse::template("CREATE INDEX ON t (a)")? {
        ast::Statement::CreateIndex(create) => Some(create),
        _ => None,
    });

fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(what, "leave it out")
}

/// Refuses what CREATE TABLE AS does not look at.
pub(crate) fn nothing_but_a_table(create: &ast::CreateTable) -> Result<()> {
    let empty = CREATE_TABLE.as_ref();
    let mut rest = create.clone();
    if let Some(empty) = empty {
        rest.name.clone_from(&empty.name);
    }
    nothing_else(&rest, empty)
}

/// What a definition is made with.
pub(crate) struct Ddl<'a> {
    pub(crate) db: &'a Database,
    pub(crate) transaction: &'a mut Transaction,
    pub(crate) cx: Context<'a>,
    /// Tables that this transaction made: nobody else can list them yet.
    pub(crate) created: &'a mut Vec<String>,
    /// What the client should know though it all went well.
    pub(crate) notice: Option<SqlError>,
}

/// A column with all that its definition says.
struct Defined {
    column: ColumnDef,
    is_key: bool,
    unique: Vec<Option<String>>,
    checks: Vec<(Option<String>, TableExpr)>,
    foreign: Vec<ast::ForeignKeyConstraint>,
    /// How an identity column counts, if it says so.
    steps: Option<Steps>,
}

/// Our expression in the model's language.
fn lowered(expr: &Expr, columns: &[String]) -> Result<TableExpr> {
    let boxed = |part: &Expr| lowered(part, columns).map(Box::new);
    let fold = |parts: &[Expr], op: Binary| {
        let mut all = parts.iter().map(|part| lowered(part, columns));
        let first = all.next().unwrap_or_else(|| Ok(TableExpr::value(op == Binary::And)))?;
        all.try_fold(first, |whole, part: Result<TableExpr>| {
            Ok::<_, SqlError>(TableExpr::Binary(op, Box::new(whole), Box::new(part?)))
        })
    };
    Ok(match expr {
        Expr::Const(value) => TableExpr::Literal(value.clone()),
        Expr::Column(place) => TableExpr::column(columns.get(*place).cloned().unwrap_or_default()),
        Expr::And(parts) => fold(parts, Binary::And)?,
        Expr::Or(parts) => fold(parts, Binary::Or)?,
        Expr::Not(inner) => TableExpr::Unary(Unary::Not, boxed(inner)?),
        Expr::Negate(inner) => TableExpr::Unary(Unary::Negate, boxed(inner)?),
        Expr::IsNull(inner, false) => TableExpr::Unary(Unary::IsNull, boxed(inner)?),
        Expr::IsNull(inner, true) => TableExpr::Unary(Unary::IsNotNull, boxed(inner)?),
        Expr::Compare(op, left, right) => {
            let op = match op {
                Compare::Eq => Binary::Eq,
                Compare::Ne => Binary::Ne,
                Compare::Lt => Binary::Lt,
                Compare::Le => Binary::Le,
                Compare::Gt => Binary::Gt,
                Compare::Ge => Binary::Ge,
            };
            TableExpr::Binary(op, boxed(left)?, boxed(right)?)
        }
        Expr::Arith(op, ty, left, right) if rank(*ty).is_some() => {
            let op = match op {
                Arith::Add => Binary::Add,
                Arith::Sub => Binary::Sub,
                Arith::Mul => Binary::Mul,
                Arith::Div => Binary::Div,
                Arith::Rem => Binary::Rem,
                other => return Err(unsupported(format!("the operator {} in a definition", other.symbol()))),
            };
            TableExpr::Binary(op, boxed(left)?, boxed(right)?)
        }
        Expr::Concat(left, right) => TableExpr::Binary(Binary::Concat, boxed(left)?, boxed(right)?),
        Expr::In(left, list) => {
            let equal = |item: &Expr| Ok(TableExpr::Binary(Binary::Eq, boxed(left)?, boxed(item)?));
            let mut all = list.iter().map(equal);
            let first = all.next().unwrap_or_else(|| Ok(TableExpr::value(false)))?;
            all.try_fold(first, |whole, part: Result<TableExpr>| Ok::<_, SqlError>(whole.or(part?)))?
        }
        Expr::Coalesce(parts) => {
            let parts: Result<Vec<_>> = parts.iter().map(|part| lowered(part, columns)).collect();
            TableExpr::Call(TableFunction::Coalesce, parts?)
        }
        Expr::Call(function, parts) if parts.len() == 1 => {
            let function = match function {
                Function::Lower => TableFunction::Lower,
                Function::Upper => TableFunction::Upper,
                Function::Length => TableFunction::Length,
                Function::Abs => TableFunction::Abs,
                other => {
                    return Err(unsupported(
                        format!("the function {other:?} in a definition").to_lowercase(),
                    ));
                }
            };
            let parts: Result<Vec<_>> = parts.iter().map(|part| lowered(part, columns)).collect();
            TableExpr::Call(function, parts?)
        }
        // Numbers of all types meet by themselves.
        Expr::Cast(inner, ty) if rank(*ty).is_some() && is_number(inner) => lowered(inner, columns)?,
        _ => {
            return Err(SqlError::unsupported(
                "this expression in a definition",
                "use comparisons, AND, OR, NOT, IN, IS NULL, arithmetic, ||, lower, upper, length, abs, coalesce",
            ));
        }
    })
}

fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Const(value) => value.value_type().is_some_and(|ty| rank(ty).is_some()),
        Expr::Arith(..) | Expr::Negate(_) => true,
        Expr::Call(function, _) => matches!(function, Function::Abs | Function::Length),
        _ => false,
    }
}

fn action(action: Option<&ast::ReferentialAction>) -> Action {
    match action {
        None | Some(ast::ReferentialAction::NoAction) => Action::NoAction,
        Some(ast::ReferentialAction::Restrict) => Action::Restrict,
        Some(ast::ReferentialAction::Cascade) => Action::Cascade,
        Some(ast::ReferentialAction::SetNull) => Action::SetNull,
        Some(ast::ReferentialAction::SetDefault) => Action::SetDefault,
    }
}

fn plain_columns(columns: &[ast::IndexColumn]) -> Result<Vec<String>> {
    let plain = |column: &ast::IndexColumn| match &column.column {
        ast::OrderByExpr {
            expr: ast::Expr::Identifier(ident),
            options: ast::OrderByOptions { asc: None, nulls_first: None },
            with_fill: None,
        } if column.operator_class.is_none() => Ok(folded(ident)),
        other => Err(unsupported(format!("{other} in a constraint"))),
    };
    columns.iter().map(plain).collect()
}

fn not_deferred(characteristics: Option<&ast::ConstraintCharacteristics>) -> Result<()> {
    match characteristics {
        None => Ok(()),
        Some(ast::ConstraintCharacteristics {
            deferrable: None | Some(false),
            initially: None | Some(ast::DeferrableInitial::Immediate),
            enforced: None | Some(true),
        }) => Ok(()),
        Some(other) => Err(unsupported(format!("a constraint {other}"))),
    }
}

fn fresh(wanted: String, taken: &[String]) -> String {
    let numbered = |n: usize| if n == 0 { wanted.clone() } else { format!("{wanted}{n}") };
    (0..).map(numbered).find(|name| !taken.contains(name)).unwrap_or(wanted)
}

impl Ddl<'_> {
    /// Runs a statement that changes definitions; `None` when it is another kind.
    pub(crate) fn run(&mut self, statement: &Statement) -> Result<Option<Outcome>> {
        let command = match statement {
            Statement::Sql(statement) => self.run_one(statement)?,
            Statement::Utility(Utility::Sequence(statement)) => Some(self.sequence(statement)?),
            Statement::Utility(Utility::Comment { on, text }) => {
                self.comment(on, text.as_deref())?;
                Some("COMMENT")
            }
            Statement::Utility(Utility::Identity(statement)) => {
                self.add_identity(statement)?;
                Some("ALTER TABLE")
            }
            Statement::Utility(_) => None,
        };
        Ok(command.map(|command| Outcome { notice: self.notice.take(), ..Outcome::of(command) }))
    }

    fn note(&mut self, message: impl Into<String>) {
        self.notice = Some(SqlError::new(state::SUCCESSFUL_COMPLETION, message));
    }

    fn run_one(&mut self, statement: &ast::Statement) -> Result<Option<&'static str>> {
        Ok(Some(match statement {
            ast::Statement::CreateTable(create) if create.query.is_some() => {
                crate::views::create_table_as(self, create)?;
                "CREATE TABLE AS"
            }
            ast::Statement::CreateSchema {
                schema_name: ast::SchemaName::Simple(name),
                if_not_exists,
                with: None,
                options: None,
                default_collate_spec: None,
                clone: None,
            } => {
                self.create_schema(name, *if_not_exists)?;
                "CREATE SCHEMA"
            }
            ast::Statement::CreateView(create) => {
                crate::views::create(self, create)?;
                "CREATE VIEW"
            }
            ast::Statement::CreateTable(create) => {
                self.create_table(create)?;
                "CREATE TABLE"
            }
            ast::Statement::CreateIndex(create) => {
                self.create_index(create)?;
                "CREATE INDEX"
            }
            ast::Statement::AlterTable(alter) => {
                self.alter_table(alter)?;
                "ALTER TABLE"
            }
            ast::Statement::Truncate(truncate) => {
                self.truncate(truncate)?;
                "TRUNCATE TABLE"
            }
            ast::Statement::Drop {
                object_type,
                if_exists,
                names,
                cascade,
                restrict: _,
                purge: false,
                temporary: false,
                table: None,
            } => match object_type {
                // CASCADE takes foreign keys along; views stay, and are an error to use.
                ast::ObjectType::Table => {
                    let names = names.iter().map(table_name).collect::<Result<Vec<_>>>()?;
                    self.part(&names, *cascade)?;
                    for name in &names {
                        self.drop_table(name, *if_exists)?;
                    }
                    "DROP TABLE"
                }
                ast::ObjectType::Index => {
                    for name in names {
                        self.drop_index(&table_name(name)?, *if_exists)?;
                    }
                    "DROP INDEX"
                }
                ast::ObjectType::View => {
                    for name in names {
                        crate::views::drop(self, &table_name(name)?, *if_exists)?;
                    }
                    "DROP VIEW"
                }
                ast::ObjectType::Sequence => {
                    for name in names {
                        self.drop_sequence(&table_name(name)?, *if_exists, *cascade)?;
                    }
                    "DROP SEQUENCE"
                }
                other => return Err(unsupported(format!("DROP {other}"))),
            },
            _ => return Ok(None),
        }))
    }

    pub(crate) fn exists(&mut self, table: &str) -> Result<bool> {
        match self.transaction.tables().table(table) {
            Ok(_) => Ok(true),
            Err(TablesError::UnknownTable { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn schema(&mut self, table: &str) -> Result<std::sync::Arc<Schema>> {
        let mut tables = self.transaction.tables();
        let handle = tables.table(table)?;
        Ok(tables.schema(&handle)?)
    }

    /// Binds an expression over the columns of a table that is being defined.
    fn bound(
        &mut self,
        expr: &ast::Expr,
        scope: &Scope,
        clause: &'static str,
        ty: Option<Type>,
    ) -> Result<(Expr, Type)> {
        let access = Access::Transaction(self.db, self.transaction);
        let mut planner = Planner::new(access, Params::default());
        let mut binder = Binder::new(&mut planner, scope, clause);
        let bound = match ty {
            None => binder.bind_closed(expr)?,
            Some(ty) => (binder.bind_as(expr, ty, Strength::Assignment)?, ty),
        };
        if !planner.subqueries.is_empty() || !planner.params.finished().is_empty() {
            return Err(unsupported(format!("a subquery or parameter in {clause}")));
        }
        Ok(bound)
    }

    fn check(&mut self, expr: &ast::Expr, scope: &Scope) -> Result<TableExpr> {
        let (expr, ty) = self.bound(expr, scope, "CHECK", None)?;
        if ty != Type::BOOL {
            let message =
                format!("argument of CHECK must be type boolean, not type {}", crate::types::type_name(ty));
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        }
        lowered(&expr, &names(scope))
    }

    fn default(&mut self, expr: &ast::Expr, ty: Type) -> Result<DefaultValue> {
        let (expr, _) = self.bound(expr, &Scope::default(), "DEFAULT", Some(ty))?;
        let mut inner = &expr;
        while let Expr::Cast(part, _) = inner {
            inner = part;
        }
        match inner {
            Expr::Call(Function::Now, _) => return Ok(DefaultValue::Now),
            Expr::Call(Function::NewUuid, _) if inner == &expr => return Ok(DefaultValue::NewUuid),
            Expr::Sequence(call, _) if call.asks == Asks::Next => return Ok(DefaultValue::Next(call.number)),
            _ => {}
        }
        if calls_anew(&expr) {
            return Err(SqlError::unsupported(
                "this DEFAULT",
                "a default is a constant, now(), current_date, gen_random_uuid() or nextval of a sequence",
            ));
        }
        Ok(match expr.constant(&self.cx)? {
            ropewalk::tables::Value::Null => DefaultValue::None,
            value => DefaultValue::Value(value),
        })
    }

    fn column(&mut self, def: &ast::ColumnDef, scope: &Scope) -> Result<Defined> {
        let name = folded(&def.name);
        let (ty, modifiers) = with_modifiers(&def.data_type)?;
        let mut column = ColumnDef::new(&name, ty);
        let mut defined = Defined {
            column: column.clone(),
            is_key: false,
            unique: Vec::new(),
            checks: Vec::new(),
            foreign: Vec::new(),
            steps: None,
        };
        if modifiers.serial {
            column = column.identity(Identity::ByDefault);
        }
        if modifiers.is_padded {
            self.note("char(n) is text of at most n characters, and not filled up with blanks");
        }
        if let Some(max) = modifiers.characters_max {
            let length = TableExpr::column(&name).call(TableFunction::Length);
            let max = i64::try_from(max).map_err(|_| unsupported(&def.data_type))?;
            defined.checks.push((Some(format!("{name}_length")), length.le(max)));
        }
        for option in &def.options {
            let label = option.name.as_ref().map(folded);
            match &option.option {
                ast::ColumnOption::Null => {}
                ast::ColumnOption::NotNull => column = column.not_null(),
                ast::ColumnOption::Default(expr) => {
                    let default = self.default(expr, ty)?;
                    column = column.default(default);
                }
                ast::ColumnOption::PrimaryKey(constraint) => {
                    not_deferred(constraint.characteristics.as_ref())?;
                    defined.is_key = true;
                }
                ast::ColumnOption::Unique(constraint) => {
                    not_deferred(constraint.characteristics.as_ref())?;
                    defined.unique.push(label);
                }
                ast::ColumnOption::Check(check) => {
                    let expr = self.check(&check.expr, scope)?;
                    defined.checks.push((label, expr));
                }
                ast::ColumnOption::ForeignKey(foreign) => {
                    let mut foreign = foreign.clone();
                    foreign.columns = vec![def.name.clone()];
                    foreign.name = foreign.name.or_else(|| option.name.clone());
                    defined.foreign.push(foreign);
                }
                ast::ColumnOption::Generated {
                    generated_as: generated_as @ (ast::GeneratedAs::Always | ast::GeneratedAs::ByDefault),
                    sequence_options,
                    generation_expr: None,
                    generation_expr_mode: None,
                    generated_keyword: _,
                } => {
                    defined.steps = match sequence_options.as_deref() {
                        None | Some([]) => None,
                        Some(options) => {
                            Some(crate::sequences::stepped(ty, None, &sequence_changes(options)?)?.1)
                        }
                    };
                    column = column.identity(match generated_as {
                        ast::GeneratedAs::Always => Identity::Always,
                        _ => Identity::ByDefault,
                    });
                }
                other => return Err(unsupported(format!("the column option {other}"))),
            }
        }
        defined.column = column;
        Ok(defined)
    }

    fn foreign_key(
        &mut self,
        foreign: &ast::ForeignKeyConstraint,
        table: &str,
        own_key: &[String],
    ) -> Result<ForeignKeyDef> {
        not_deferred(foreign.characteristics.as_ref())?;
        if foreign.match_kind.is_some_and(|kind| kind != ast::ConstraintReferenceMatchKind::Simple)
            || foreign.index_name.is_some()
        {
            return Err(unsupported(format!("the foreign key {foreign}")));
        }
        let parent = table_name(&foreign.foreign_table)?;
        let columns: Vec<String> = foreign.columns.iter().map(folded).collect();
        let mut referred: Vec<String> = foreign.referred_columns.iter().map(folded).collect();
        if referred.is_empty() {
            referred = if parent == table {
                own_key.to_vec()
            } else {
                let schema = self.schema(&parent)?;
                let name =
                    |place: &usize| schema.columns().get(*place).map(|column| column.name().to_owned());
                schema.key_columns().iter().filter_map(name).collect()
            };
        }
        if referred.len() != columns.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(SqlError::new(state::INVALID_FOREIGN_KEY, message));
        }
        let mut def = ForeignKeyDef::new(columns, parent, referred)
            .on_delete(action(foreign.on_delete.as_ref()))
            .on_update(action(foreign.on_update.as_ref()));
        if let Some(name) = &foreign.name {
            def = def.named(folded(name));
        }
        Ok(def)
    }

    fn create_table(&mut self, create: &ast::CreateTable) -> Result<()> {
        let empty = CREATE_TABLE.as_ref();
        let mut rest = create.clone();
        if let Some(empty) = empty {
            rest.name.clone_from(&empty.name);
        }
        rest.columns.clear();
        rest.constraints.clear();
        rest.if_not_exists = false;
        rest.table_options = self.storage_hints(&create.table_options)?;
        nothing_else(&rest, empty)?;
        let name = table_name(&create.name)?;
        if create.if_not_exists && self.exists(&name)? {
            return Ok(());
        }
        let mut scope = Scope::default();
        let mut columns = Vec::new();
        for column in &create.columns {
            columns.push((folded(&column.name), with_modifiers(&column.data_type)?.0));
        }
        scope.add(name.clone(), columns)?;
        let mut def = TableDef::new(&name);
        let mut key: Vec<String> = Vec::new();
        let mut keys = 0;
        let mut checks: Vec<(Option<String>, String, TableExpr)> = Vec::new();
        let mut foreign: Vec<ast::ForeignKeyConstraint> = Vec::new();
        let mut stepped: Vec<(String, Steps)> = Vec::new();
        for column in &create.columns {
            let defined = self.column(column, &scope)?;
            let label = folded(&column.name);
            if defined.is_key {
                key.push(label.clone());
                keys += 1;
            }
            for unique in defined.unique {
                let index = IndexDef::on([label.as_str()]).unique();
                def = def.index(if let Some(name) = unique { index.named(name) } else { index });
            }
            checks.extend(
                defined
                    .checks
                    .into_iter()
                    .map(|(given, expr)| (given, format!("{name}_{label}_check"), expr)),
            );
            foreign.extend(defined.foreign);
            stepped.extend(defined.steps.map(|steps| (label.clone(), steps)));
            def = def.column(defined.column);
        }
        for constraint in &create.constraints {
            match constraint {
                ast::TableConstraint::PrimaryKey(constraint) => {
                    not_deferred(constraint.characteristics.as_ref())?;
                    key = plain_columns(&constraint.columns)?;
                    keys += 1;
                }
                ast::TableConstraint::Unique(constraint) => def = def.index(unique_index(constraint)?),
                ast::TableConstraint::Check(check) => {
                    let expr = self.check(&check.expr, &scope)?;
                    checks.push((check.name.as_ref().map(folded), format!("{name}_check"), expr));
                }
                ast::TableConstraint::ForeignKey(constraint) => foreign.push(constraint.clone()),
                other => return Err(unsupported(format!("the constraint {other}"))),
            }
        }
        if keys > 1 {
            let message = format!("multiple primary keys for table \"{name}\" are not allowed");
            return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
        }
        if !key.is_empty() {
            def = def.primary_key(key.clone());
        }
        let mut taken = Vec::new();
        for (given, wanted, expr) in checks {
            let label = given.unwrap_or_else(|| fresh(wanted, &taken));
            taken.push(label.clone());
            def = def.check(label, expr);
        }
        for constraint in &foreign {
            let foreign_key = self.foreign_key(constraint, &name, &key)?;
            def = def.foreign_key(foreign_key);
        }
        self.transaction.tables().create_table(def)?;
        for (column, steps) in stepped {
            self.count_by(&name, &column, steps)?;
        }
        self.created.push(name);
        Ok(())
    }

    /// The options of a table but for PostgreSQL's hints on how to store it, which have nothing to say here.
    fn storage_hints(&mut self, options: &ast::CreateTableOptions) -> Result<ast::CreateTableOptions> {
        let ast::CreateTableOptions::With(list) = options else { return Ok(options.clone()) };
        let hint = |option: &ast::SqlOption| match option {
            ast::SqlOption::KeyValue { key, .. } => {
                let name = folded(key);
                let known =
                    name == "fillfactor" || name == "toast_tuple_target" || name.starts_with("autovacuum_");
                known.then_some(name)
            }
            _ => None,
        };
        let (hints, others): (Vec<_>, Vec<_>) =
            list.iter().map(|option| (hint(option), option)).partition(|(hint, _)| hint.is_some());
        if let Some((_, other)) = others.first() {
            return Err(unsupported(format!("the option {other}")));
        }
        let names: Vec<String> = hints.into_iter().filter_map(|(hint, _)| hint).collect();
        self.note(format!("{} ignored: rows are not stored in pages", names.join(", ")));
        Ok(ast::CreateTableOptions::None)
    }

    /// The definition of an index, and the table it is on.
    pub(crate) fn index_def(&mut self, create: &ast::CreateIndex) -> Result<(String, IndexDef)> {
        let empty = CREATE_INDEX.as_ref();
        let mut rest = create.clone();
        if let Some(empty) = empty {
            rest.table_name.clone_from(&empty.table_name);
            rest.columns.clone_from(&empty.columns);
        }
        (rest.name, rest.predicate) = (None, None);
        (rest.unique, rest.concurrently, rest.if_not_exists) = (false, false, false);
        rest.using = rest.using.filter(|using| *using != ast::IndexType::BTree);
        nothing_else(&rest, empty)?;
        let table = table_name(&create.table_name)?;
        let schema = self.schema(&table)?;
        let mut scope = Scope::default();
        scope.add_table(table.clone(), &schema)?;
        let mut def = IndexDef::on(Vec::<String>::new());
        for column in &create.columns {
            if column.operator_class.is_some() || column.column.with_fill.is_some() {
                return Err(unsupported(column));
            }
            let (expr, _) = self.bound(&column.column.expr, &scope, "an index", None)?;
            let options = &column.column.options;
            let descending = options.asc == Some(false);
            let order = KeyOrder { descending, nulls_first: options.nulls_first.unwrap_or(descending) };
            def = def.then(lowered(&expr, &names(&scope))?, order);
        }
        if let Some(predicate) = &create.predicate {
            let filter = self.check(predicate, &scope)?;
            def = def.filter(filter);
        }
        if create.unique {
            def = def.unique();
        }
        if let Some(name) = &create.name {
            def = def.named(table_name(name)?);
        }
        Ok((table, def))
    }

    fn create_index(&mut self, create: &ast::CreateIndex) -> Result<()> {
        if create.concurrently {
            let message = "CREATE INDEX CONCURRENTLY cannot run inside a transaction block";
            return Err(SqlError::new(state::ACTIVE_SQL_TRANSACTION, message));
        }
        if self.index_is_there(create)? {
            return Ok(());
        }
        let (table, def) = self.index_def(create)?;
        Ok(self.transaction.tables().create_index(&table, def)?)
    }

    /// True when IF NOT EXISTS has nothing to do.
    ///
    /// # Errors
    /// 42P07 when the name is taken and that was not foreseen.
    pub(crate) fn index_is_there(&mut self, create: &ast::CreateIndex) -> Result<bool> {
        let Some(name) = &create.name else { return Ok(false) };
        let name = table_name(name)?;
        match self.table_of_index(&name)? {
            Some(_) if create.if_not_exists => Ok(true),
            Some(_) => {
                Err(SqlError::new(state::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")))
            }
            None => Ok(false),
        }
    }

    pub(crate) fn table_of_index(&mut self, index: &str) -> Result<Option<String>> {
        let mut names = self.db.tables().names()?;
        names.extend(self.created.iter().cloned());
        for name in names {
            if !self.exists(&name)? {
                continue;
            }
            let schema = self.schema(&name)?;
            let is_key = !schema.key_columns().is_empty() && schema.key_name() == index;
            if is_key || schema.indexes().iter().any(|known| known.name() == index) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// There is one schema, which everybody has.
    fn create_schema(&mut self, name: &ast::ObjectName, if_not_exists: bool) -> Result<()> {
        let name = crate::scope::parts(name)?.join(".");
        if name != "public" {
            return Err(SqlError::unsupported(
                format!("a schema \"{name}\""),
                "there is one schema, public; prefixes of names do as well",
            ));
        }
        let message = "schema \"public\" already exists";
        if !if_not_exists {
            return Err(SqlError::new(state::DUPLICATE_SCHEMA, message));
        }
        self.notice = Some(SqlError::new(state::DUPLICATE_SCHEMA, format!("{message}, skipping")));
        Ok(())
    }

    /// Drops the foreign keys that keep tables from going: those among them, and with CASCADE those of others.
    fn part(&mut self, names: &[String], cascades: bool) -> Result<()> {
        if names.len() < 2 && !cascades {
            return Ok(());
        }
        let mut going = Vec::new();
        for name in names {
            if self.exists(name)? {
                going.push(self.schema(name)?.id());
            }
        }
        let mut tables = self.db.tables().names()?;
        tables.extend(self.created.iter().cloned());
        tables.sort();
        tables.dedup();
        for table in tables {
            if !self.exists(&table)? {
                continue;
            }
            let schema = self.schema(&table)?;
            if !cascades && !going.contains(&schema.id()) {
                continue;
            }
            let others = schema.foreign_keys().iter().filter(|key| key.parent() != schema.id());
            for key in others.filter(|key| going.contains(&key.parent())) {
                self.uncomment(Some("constraint"), i64::from(schema.id()), Some(key.name()))?;
                self.transaction.tables().drop_constraint(schema.name(), key.name())?;
            }
        }
        Ok(())
    }

    fn drop_table(&mut self, name: &str, if_exists: bool) -> Result<()> {
        if if_exists && !self.exists(name)? {
            return Ok(());
        }
        let id = if self.exists(name)? { Some(self.schema(name)?.id()) } else { None };
        self.transaction.tables().drop_table(name).map_err(dependent)?;
        if let Some(id) = id {
            self.uncomment(None, i64::from(id), None)?;
            self.drop_owned(id, None)?;
        }
        self.created.retain(|created| created != name);
        Ok(())
    }

    fn drop_index(&mut self, name: &str, if_exists: bool) -> Result<()> {
        match self.table_of_index(name)? {
            Some(table) => {
                let id = i64::from(self.schema(&table)?.id());
                self.uncomment(Some("index"), id, Some(name))?;
                self.transaction.tables().drop_index(&table, name).map_err(dependent)
            }
            None if if_exists => Ok(()),
            None => Err(SqlError::new(state::UNDEFINED_OBJECT, format!("index \"{name}\" does not exist"))),
        }
    }

    fn truncate(&mut self, truncate: &ast::Truncate) -> Result<()> {
        let ast::Truncate {
            table_names,
            partitions: None,
            table: _,
            if_exists: false,
            identity,
            cascade,
            on_cluster: None,
        } = truncate
        else {
            return Err(unsupported(truncate));
        };
        let restart = *identity == Some(ast::TruncateIdentityOption::Restart);
        let names: Vec<String> =
            table_names.iter().map(|target| table_name(&target.name)).collect::<Result<_>>()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let cascades = *cascade == Some(ast::CascadeOption::Cascade);
        let truncated = self.transaction.tables().truncate_all(&names, restart, cascades);
        let truncated = truncated.map_err(|error| match error {
            TablesError::Dependent { .. } => {
                let message = "cannot truncate a table referenced in a foreign key constraint";
                SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint(
                    "truncate the table that refers to it at the same time, or use TRUNCATE ... CASCADE",
                )
            }
            other => other.into(),
        })?;
        for schema in truncated.iter().filter(|_| restart) {
            self.restart_owned(schema.id())?;
        }
        Ok(())
    }

    fn alter_table(&mut self, alter: &ast::AlterTable) -> Result<()> {
        let ast::AlterTable {
            name,
            if_exists,
            only: _,
            operations,
            location: None,
            on_cluster: None,
            table_type: None,
            end_token: _,
        } = alter
        else {
            return Err(unsupported(alter));
        };
        let mut table = table_name(name)?;
        if *if_exists && !self.exists(&table)? {
            return Ok(());
        }
        for operation in operations {
            if let Some(renamed) = self.alter(&table, operation)? {
                table = renamed;
            }
        }
        Ok(())
    }

    /// One change of a table; answers its new name if it has one.
    fn alter(&mut self, table: &str, operation: &ast::AlterTableOperation) -> Result<Option<String>> {
        use ast::AlterTableOperation as O;
        match operation {
            O::AddColumn { column_keyword: _, if_not_exists, column_def, column_position: None } => {
                let schema = self.schema(table)?;
                if *if_not_exists && schema.index_of(&folded(&column_def.name)).is_ok() {
                    return Ok(None);
                }
                self.add_column(table, &schema, column_def)?;
            }
            O::DropColumn { has_column_keyword: _, column_names, if_exists, drop_behavior: _ } => {
                for name in column_names {
                    let name = folded(name);
                    if *if_exists && self.schema(table)?.index_of(&name).is_err() {
                        continue;
                    }
                    let schema = self.schema(table)?;
                    let id = schema.index_of(&name).ok().and_then(|place| schema.columns().get(place));
                    let id = id.map(|column| column.id());
                    self.transaction.tables().drop_column(table, &name).map_err(dependent)?;
                    if let Some(id) = id {
                        self.uncomment(Some("column"), i64::from(schema.id()), Some(&id.to_string()))?;
                        self.drop_owned(schema.id(), Some(id))?;
                    }
                }
            }
            O::RenameColumn { old_column_name, new_column_name } => {
                let (old, new) = (folded(old_column_name), folded(new_column_name));
                self.transaction.tables().rename_column(table, &old, &new)?;
            }
            O::RenameTable { table_name: ast::RenameTableNameKind::To(name) } => {
                let new = table_name(name)?;
                self.transaction.tables().rename_table(table, &new)?;
                self.created.push(new.clone());
                return Ok(Some(new));
            }
            O::AlterColumn { column_name, op } => {
                let column = folded(column_name);
                let mut tables = self.transaction.tables();
                match op {
                    ast::AlterColumnOperation::SetNotNull => tables.set_nullable(table, &column, false)?,
                    ast::AlterColumnOperation::DropNotNull => tables.set_nullable(table, &column, true)?,
                    ast::AlterColumnOperation::DropDefault => {
                        tables.set_default(table, &column, DefaultValue::None)?
                    }
                    ast::AlterColumnOperation::SetDefault { value } => {
                        let schema = self.schema(table)?;
                        let place = schema.index_of(&column)?;
                        let ty =
                            schema.columns().get(place).map_or(Type::TEXT, |column| column.column_type());
                        let default = self.default(value, ty)?;
                        self.transaction.tables().set_default(table, &column, default)?;
                    }
                    ast::AlterColumnOperation::AddGenerated { generated_as, sequence_options } => {
                        let always = *generated_as == Some(ast::GeneratedAs::Always);
                        let changes = sequence_changes(sequence_options.as_deref().unwrap_or_default())?;
                        let table = table.to_owned();
                        self.add_identity(&AddIdentity { table, column, always, changes })?;
                    }
                    other => return Err(unsupported(format!("ALTER COLUMN {other}"))),
                }
            }
            O::AddConstraint { constraint, not_valid: false } => self.add_constraint(table, constraint)?,
            O::DropConstraint { if_exists, name, drop_behavior: _ } => {
                let name = folded(name);
                let schema = self.schema(table)?;
                let is_index = schema.indexes().iter().any(|index| index.is_unique() && index.name() == name);
                self.uncomment(Some("constraint"), i64::from(schema.id()), Some(&name))?;
                let mut tables = self.transaction.tables();
                let dropped = if is_index {
                    tables.drop_index(table, &name)
                } else {
                    tables.drop_constraint(table, &name)
                };
                match dropped {
                    Err(TablesError::UnknownConstraint { .. }) if *if_exists => {}
                    other => other.map_err(dependent)?,
                }
            }
            other => return Err(unsupported(format!("ALTER TABLE {other}"))),
        }
        Ok(None)
    }

    fn add_column(&mut self, table: &str, schema: &Schema, def: &ast::ColumnDef) -> Result<()> {
        let name = folded(&def.name);
        let mut columns: Vec<(String, Type)> =
            schema.columns().iter().map(|column| (column.name().to_owned(), column.column_type())).collect();
        columns.push((name.clone(), with_modifiers(&def.data_type)?.0));
        let mut scope = Scope::default();
        scope.add(table.to_owned(), columns)?;
        let defined = self.column(def, &scope)?;
        self.transaction.tables().add_column(table, defined.column)?;
        if let Some(steps) = defined.steps {
            self.count_by(table, &name, steps)?;
        }
        if defined.is_key {
            self.transaction.tables().add_primary_key(table, None, std::slice::from_ref(&name))?;
        }
        for unique in defined.unique {
            let index = IndexDef::on([name.as_str()]).unique();
            let index = if let Some(name) = unique { index.named(name) } else { index };
            self.transaction.tables().create_index(table, index)?;
        }
        for (given, expr) in defined.checks {
            let taken: Vec<String> = schema.checks().iter().map(|check| check.name().to_owned()).collect();
            let label = given.unwrap_or_else(|| fresh(format!("{table}_{name}_check"), &taken));
            self.transaction.tables().add_check(table, &label, expr)?;
        }
        for foreign in &defined.foreign {
            let foreign_key = self.foreign_key(foreign, table, &[])?;
            self.transaction.tables().add_foreign_key(table, foreign_key)?;
        }
        Ok(())
    }

    fn add_constraint(&mut self, table: &str, constraint: &ast::TableConstraint) -> Result<()> {
        let schema = self.schema(table)?;
        match constraint {
            ast::TableConstraint::Unique(unique) => {
                self.transaction.tables().create_index(table, unique_index(unique)?)?;
            }
            ast::TableConstraint::Check(check) => {
                let mut scope = Scope::default();
                scope.add_table(table.to_owned(), &schema)?;
                let expr = self.check(&check.expr, &scope)?;
                let taken: Vec<String> =
                    schema.checks().iter().map(|check| check.name().to_owned()).collect();
                let given = check.name.as_ref().map(folded);
                let label = given.unwrap_or_else(|| fresh(format!("{table}_check"), &taken));
                self.transaction.tables().add_check(table, &label, expr)?;
            }
            ast::TableConstraint::ForeignKey(foreign) => {
                let key = |place: &usize| schema.columns().get(*place).map(|column| column.name().to_owned());
                let own: Vec<String> = schema.key_columns().iter().filter_map(key).collect();
                let foreign_key = self.foreign_key(foreign, table, &own)?;
                self.transaction.tables().add_foreign_key(table, foreign_key)?;
            }
            ast::TableConstraint::PrimaryKey(primary) => {
                not_deferred(primary.characteristics.as_ref())?;
                if !schema.key_columns().is_empty() {
                    let message = format!("multiple primary keys for table \"{table}\" are not allowed");
                    return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
                }
                let name = primary.name.as_ref().map(folded);
                let columns = plain_columns(&primary.columns)?;
                self.transaction.tables().add_primary_key(table, name.as_deref(), &columns)?;
            }
            other => return Err(unsupported(format!("the constraint {other}"))),
        }
        Ok(())
    }
}

/// The options of an identity column.
fn sequence_changes(options: &[ast::SequenceOptions]) -> Result<Vec<SequenceChange>> {
    use SequenceChange as C;
    let number = |expr: &ast::Expr| {
        let text = expr.to_string();
        text.parse::<i64>().map_err(|_| {
            SqlError::new(state::INVALID_PARAMETER_VALUE, format!("{text} is no number of a sequence"))
        })
    };
    let change = |option: &ast::SequenceOptions| {
        Ok(match option {
            ast::SequenceOptions::IncrementBy(by, _) => Some(C::Increment(number(by)?)),
            ast::SequenceOptions::MinValue(least) => Some(C::Least(least.as_ref().map(number).transpose()?)),
            ast::SequenceOptions::MaxValue(greatest) => {
                Some(C::Greatest(greatest.as_ref().map(number).transpose()?))
            }
            ast::SequenceOptions::StartWith(start, _) => Some(C::Start(number(start)?)),
            // Numbers are handed out one by one from a block that is reserved in the log; no session keeps some.
            ast::SequenceOptions::Cache(_) => None,
            ast::SequenceOptions::Cycle(no) => Some(C::Cycle(!no)),
        })
    };
    options.iter().filter_map(|option| change(option).transpose()).collect()
}

fn unique_index(constraint: &ast::UniqueConstraint) -> Result<IndexDef> {
    not_deferred(constraint.characteristics.as_ref())?;
    if constraint.nulls_distinct == ast::NullsDistinctOption::NotDistinct || constraint.index_type.is_some() {
        return Err(unsupported(format!("the constraint {constraint}")));
    }
    let index = IndexDef::on(plain_columns(&constraint.columns)?).unique();
    Ok(if let Some(name) = &constraint.name { index.named(folded(name)) } else { index })
}

fn names(scope: &Scope) -> Vec<String> {
    scope.all(None).into_iter().map(|(name, _, _)| name).collect()
}

/// True when a part of the expression is another one each time.
fn calls_anew(expr: &Expr) -> bool {
    let mut found = expr.is_volatile() || matches!(expr, Expr::Call(Function::Now, _));
    expr.for_parts(&mut |part| found |= calls_anew(part));
    found
}

fn dependent(error: TablesError) -> SqlError {
    let is_dependent = matches!(error, TablesError::Dependent { .. });
    let error = SqlError::from(error);
    if is_dependent {
        error.hint("drop what depends on it first; CASCADE takes nothing along")
    } else {
        error
    }
}

/// Builds an index beside running writers, outside of any transaction.
pub(crate) fn create_index_concurrently(
    db: &Database,
    transaction: &mut Transaction,
    cx: Context<'_>,
    create: &ast::CreateIndex,
) -> Result<()> {
    let mut created = Vec::new();
    let mut ddl = Ddl { db, transaction, cx, created: &mut created, notice: None };
    if ddl.index_is_there(create)? {
        return Ok(());
    }
    let (table, def) = ddl.index_def(create)?;
    Ok(db.tables().create_index(&table, def)?)
}
