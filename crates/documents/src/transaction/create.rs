//! Creation of collections inside a transaction, and reports of definition changes to change streams.
//!
//! A statement that writes to a missing collection creates it, so this module is below the writes; other
//! changes are above.

use std::sync::Arc;

use crate::catalog::definition::{Definition, ID_INDEX};
use crate::error::Result;
use crate::lang::{Value, Writer};
use crate::model::commit_section::{Event, What};
use crate::model::handle::{self, Collection};
use crate::transaction::tx::DocumentsTx;

impl DocumentsTx<'_> {
    pub(crate) fn new_definition(&self, collection: &Collection) -> Result<Definition> {
        self.check_unreserved(collection)?;
        let engine = &self.documents.engine;
        let id = self.documents.model.new_number(engine)?;
        let random = &engine.env().random;
        let mut uuid = [0; 16];
        for (place, byte) in
            random.next_u64().to_le_bytes().into_iter().chain(random.next_u64().to_le_bytes()).enumerate()
        {
            if let Some(slot) = uuid.get_mut(place) {
                *slot = match place {
                    6 => byte & 0x0f | 0x40,
                    8 => byte & 0x3f | 0x80,
                    _ => byte,
                };
            }
        }
        let mut definition = Definition::new(id, collection.database(), collection.name(), uuid);
        definition.quota =
            handle::quota(&self.documents.model, self.snapshot_catalog().view(), collection.database())?;
        Ok(definition)
    }

    /// Creates a collection during a statement that needs it.
    pub(crate) fn create_now(&mut self, collection: &Collection) -> Result<Arc<Definition>> {
        let definition = self.new_definition(collection)?;
        self.tell_created(&definition);
        self.put_definition(definition, Event::Created)
    }

    /// Writes a definition with changed options.
    pub(crate) fn put_modified(&mut self, changed: Definition) -> Result<Arc<Definition>> {
        self.tell(&changed, "modify", |_| ());
        self.put_definition(changed, Event::Changed)
    }
}

/// Expanded events of change streams, about definitions.
impl DocumentsTx<'_> {
    pub(crate) fn tell(
        &mut self,
        definition: &Definition,
        operation: &str,
        describe: impl FnOnce(&mut Writer),
    ) {
        let mut event = Writer::new();
        event.put("operationType", Value::String(operation));
        event.put("collectionUUID", Value::Binary(4, &definition.uuid));
        event.open_document("operationDescription");
        describe(&mut event);
        event.close();
        let event = event.finish();
        let (database, name) = (definition.database.as_str(), definition.name.as_str());
        self.defined(definition.id, What::Told { database, name, event: event.bytes() });
    }

    pub(crate) fn tell_created(&mut self, definition: &Definition) {
        self.tell(definition, "create", |out| {
            out.open_document("idIndex");
            out.put("v", Value::Int32(2));
            out.open_document("key");
            out.put("_id", Value::Int32(1));
            out.close();
            out.put("name", Value::String(ID_INDEX));
            out.close();
            if let Some(validator) = &definition.options.validator {
                out.put("validator", Value::Document(validator.doc()));
            }
        });
    }
}
