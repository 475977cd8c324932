//! CREATE and DROP EXTENSION: the functions of some extensions are built in, and no others can be installed.

use super::Ddl;
use crate::catalog::extensions::{EXTENSIONS, Extension};
use crate::error::{Result, SqlError, state};
use crate::syntax::statements::CreateExtension;

fn found(name: &str) -> Option<&'static Extension> {
    EXTENSIONS.iter().find(|known| known.name == name)
}

impl Ddl<'_> {
    pub(super) fn create_extension(&mut self, statement: &CreateExtension) -> Result<()> {
        let CreateExtension { name, if_not_exists, schema, version } = statement;
        let Some(known) = found(name) else {
            let built_in: Vec<&str> = EXTENSIONS.iter().map(|known| known.name).collect();
            return Err(SqlError::new(
                state::FEATURE_NOT_SUPPORTED,
                format!("extension \"{name}\" is not available"),
            )
            .hint(format!(
                "extensions are built in, and none can be installed; there is {}",
                built_in.join(", ")
            )));
        };
        if let Some(version) = version.as_ref().filter(|version| *version != known.version) {
            let message =
                format!("extension \"{name}\" has no installation script for version \"{version}\"");
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
        }
        if let Some(schema) = schema.as_ref().filter(|schema| *schema != "pg_catalog") {
            self.note(format!(
                "extension \"{name}\" is built in: its functions are in pg_catalog, not in {schema}"
            ));
        }
        let message = format!("extension \"{name}\" already exists");
        if !if_not_exists {
            return Err(SqlError::new(state::DUPLICATE_OBJECT, message)
                .hint(format!("it is built in, with {}", known.has)));
        }
        if self.notice.is_none() {
            self.note(format!("{message}, skipping: it is built in, with {}", known.has));
        }
        Ok(())
    }

    pub(super) fn drop_extensions(&mut self, names: &[String], if_exists: bool) -> Result<()> {
        for name in names {
            if found(name).is_some() {
                let message =
                    format!("cannot drop extension {name} because it is required by the database system");
                return Err(SqlError::new(state::DEPENDENT_OBJECTS_STILL_EXIST, message));
            }
            let message = format!("extension \"{name}\" does not exist");
            if !if_exists {
                return Err(SqlError::new(state::UNDEFINED_OBJECT, message));
            }
            self.note(format!("{message}, skipping"));
        }
        Ok(())
    }
}
