//! The nodes of a cluster, as they report themselves in the checkpoint store.
//!
//! ```text
//! nodes/NODE-ENTRY: this node needs the entries after ENTRY if it is opened again
//! ```
//! A newer report has another name; its node deletes the ones before.

use std::collections::BTreeMap;

use ropewalk_base::{DecodeError, Decoder, crc32c, from_hex, hex, put_bytes, put_u32};
use ropewalk_log::shared::{EntryIndex, SavedPlace};

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::{Checkpoints, NODES};

const MAGIC: [u8; 8] = *b"ROPENODE";
const VERSION: u32 = 1;
/// Bytes of a report before those that its checksum covers.
const HEADER_BYTES: usize = 16;

/// A node, as it has reported itself last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    /// Its name.
    pub node: [u8; 16],
    /// Address that it advertises.
    pub address: String,
    /// It was leading.
    pub leads: bool,
    /// Its clock, microseconds since 1970.
    pub time_micros: i64,
    /// The shared log, and the entry after which it continues when it is opened again.
    pub place: SavedPlace,
}

/// A report that was found: its node and entry are in its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportName {
    pub(crate) name: String,
    pub(crate) node: [u8; 16],
    pub(crate) index: EntryIndex,
}

impl ReportName {
    fn name_of(node: &[u8; 16], index: EntryIndex) -> String {
        format!("{NODES}/{}-{:016x}", hex(node), index.0)
    }

    fn parse(name: String) -> Option<Self> {
        let (node, index) = name.strip_prefix(NODES)?.strip_prefix('/')?.split_once('-')?;
        let node = from_hex(node)?.try_into().ok()?;
        let index = EntryIndex(u64::from_str_radix(index, 16).ok()?);
        Some(Self { node, index, name })
    }
}

impl NodeReport {
    fn encode(&self) -> Vec<u8> {
        let mut fields = self.node.to_vec();
        put_bytes(&mut fields, self.address.as_bytes());
        fields.push(u8::from(self.leads));
        fields.extend_from_slice(&self.time_micros.to_le_bytes());
        put_bytes(&mut fields, &self.place.encode());
        let mut object = MAGIC.to_vec();
        put_u32(&mut object, VERSION);
        put_u32(&mut object, crc32c(&fields));
        object.extend_from_slice(&fields);
        object
    }

    fn decode(object: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(object);
        let wrong = |what, offset| Err(DecodeError { what, offset });
        if decoder.array("magic of a node")? != MAGIC {
            return wrong("magic of a node", 0);
        }
        if decoder.u32("version of a node")? != VERSION {
            return wrong("version 1 of a node", MAGIC.len());
        }
        if decoder.u32("checksum of a node")? != crc32c(decoder.rest()) {
            return wrong("checksum of a node", HEADER_BYTES);
        }
        let node = decoder.array("name of a node")?;
        let address = decoder.str("address of a node")?.to_owned();
        let leads = decoder.u8("role of a node")? != 0;
        let time_micros = i64::from_le_bytes(decoder.array("time of a node")?);
        let place = SavedPlace::decode(decoder.bytes("place of a node")?)?;
        if !decoder.is_empty() {
            return wrong("end of a node", decoder.offset());
        }
        Ok(Self { node, address, leads, time_micros, place })
    }
}

impl Checkpoints {
    /// Stores the report of a node, and deletes its earlier ones.
    ///
    /// # Errors
    /// [`CheckpointError::Store`].
    pub fn report(&self, report: &NodeReport) -> Result<(), CheckpointError> {
        let name = ReportName::name_of(&report.node, report.place.place.index);
        self.store.create(&name, &report.encode())?;
        for old in self.names_of(&report.node)? {
            if old != name {
                self.store.delete(&old)?;
            }
        }
        Ok(())
    }

    /// Deletes the reports of a node that has left the cluster, so that they no longer prevent trimming of the log; returns how
    /// many.
    ///
    /// # Errors
    /// [`CheckpointError::Store`].
    pub fn forget(&self, node: &[u8; 16]) -> Result<u64, CheckpointError> {
        let names = self.names_of(node)?;
        for name in &names {
            self.store.delete(name)?;
        }
        Ok(names.len() as u64)
    }

    /// The nodes that have reported themselves, in the order of their names. A damaged report is left out.
    ///
    /// # Errors
    /// [`CheckpointError::Store`].
    pub fn node_reports(&self) -> Result<Vec<NodeReport>, CheckpointError> {
        let mut newest = BTreeMap::new();
        for found in self.report_names()? {
            let Some(object) = self.store.read(&found.name)? else { continue };
            let Ok(report) = NodeReport::decode(&object) else { continue };
            if report.node == found.node {
                // Two may be there for a moment.
                let known = newest.entry(found.node).or_insert_with(|| report.clone());
                if report.place.place.index > known.place.place.index {
                    *known = report;
                }
            }
        }
        Ok(newest.into_values().collect())
    }

    /// All reports, without reading them.
    pub(crate) fn report_names(&self) -> Result<Vec<ReportName>, CheckpointError> {
        Ok(self.store.list(NODES)?.into_iter().filter_map(ReportName::parse).collect())
    }

    /// Names of all objects of a node, leftovers included.
    fn names_of(&self, node: &[u8; 16]) -> Result<Vec<String>, CheckpointError> {
        let prefix = format!("{NODES}/{}-", hex(node));
        Ok(self.store.list(NODES)?.into_iter().filter(|name| name.starts_with(&prefix)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_base::Seq;
    use ropewalk_log::LogId;
    use ropewalk_log::shared::{ChainHash, Place};

    fn report() -> NodeReport {
        let place = Place { index: EntryIndex(2), chain: ChainHash([3; 16]), term: 4, seq: Seq(5) };
        let place = SavedPlace { log: LogId([1; 16]), place, leader: None };
        NodeReport { node: [7; 16], address: "a:1".to_owned(), leads: true, time_micros: 9, place }
    }

    #[test]
    fn golden_bytes() {
        let object = report().encode();
        let place = hex(&report().place.encode());
        let expected = [
            "524f50454e4f444501000000",         // magic, version
            "07070707070707070707070707070707", // node
            "03613a310109000000000000",         // address, role, time
            "00",
            &format!("{:02x}{place}", place.len() / 2),
        ]
        .concat();
        let without_sum = [&object[..12], &object[16..]].concat();
        assert_eq!(hex(&without_sum), expected);
        assert_eq!(object[12..16], crc32c(&object[16..]).to_le_bytes());
        assert_eq!(NodeReport::decode(&object).unwrap(), report());
        for at in 0..object.len() {
            let mut changed = object.clone();
            changed[at] ^= 2;
            assert!(NodeReport::decode(&changed).is_err(), "byte {at}");
            assert!(NodeReport::decode(&object[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn name_tells_node_and_entry() {
        let name = ReportName::name_of(&[7; 16], EntryIndex(258));
        assert_eq!(name, format!("nodes/{}-0000000000000102", "07".repeat(16)));
        let found = ReportName::parse(name.clone()).unwrap();
        assert_eq!((found.node, found.index), ([7; 16], EntryIndex(258)));
        assert_eq!(ReportName::parse(format!("{name}.0123.new")), None);
    }
}
