//! The payload of a commit record: its frame, the sections of keyspaces and their definitions, the sections of events.

use ropewalk_base::{Seq, put_bytes, put_u32, put_u64, put_varint};
use ropewalk_engine::{KEYSPACES, KV, RecordBody, decode_definition, decode_section};
use ropewalk_events::{AppendSection, EVENTS};

pub(crate) fn record(data: &[u8]) {
    let Ok(body) = RecordBody::decode(data) else { return };
    let mut bytes = 0;
    for section in body.sections() {
        let Ok((model, section)) = section else { return };
        bytes += section.len();
        if model == KV {
            let _ = decode_section(section, |_, _| ());
        }
        if model == KEYSPACES {
            let _ = decode_definition(section);
        }
        if model == EVENTS
            && let Ok(append) = AppendSection::decode(section)
        {
            events(&append);
        }
    }
    assert!(bytes < data.len(), "sections lie within the record");
}

fn events(append: &AppendSection<'_>) {
    for event in append.events() {
        let Ok((position, body)) = event else { return };
        let event = body.to_event();
        assert!(position >= append.first);
        assert_eq!((body.tags().len(), body.metadata().len()), (event.tags.len(), event.metadata.len()));
        assert!(event.event_type == body.event_type() && event.data == body.data());
    }
}

/// One commit that writes, deletes and deletes a range of keys, appends two events with everything they may have, and
/// defines a keyspace.
pub(crate) fn record_seeds() -> Vec<Vec<u8>> {
    let mut keys = vec![1, 0, 0];
    put_bytes(&mut keys, b"key");
    put_bytes(&mut keys, b"value");
    keys.extend_from_slice(&[1, 0, 1]);
    put_bytes(&mut keys, b"gone");
    keys.extend_from_slice(&[2, 0, 2]);
    put_bytes(&mut keys, b"from");
    put_bytes(&mut keys, b"to");

    let mut append = Vec::new();
    put_u32(&mut append, 5);
    append.push(7);
    put_u64(&mut append, Seq(9).0);
    put_bytes(&mut append, b"store");
    put_bytes(&mut append, b"upstream");
    put_varint(&mut append, 300);
    put_bytes(&mut append, b"key");
    put_u64(&mut append, 7);
    put_varint(&mut append, 2);
    let plain = b"\x01A\x00\x00xy".to_vec();
    let full = [&b"\x01B\x02\x01t\x01u\x03"[..], &[0x11; 16], b"\x01\x01k\x01vdata"].concat();
    put_bytes(&mut append, &plain);
    put_bytes(&mut append, &full);

    let mut definition = vec![2, 0];
    put_bytes(&mut definition, b"name");
    definition.extend_from_slice(&[0, 1, 0, 0, 16, 0, 0]);

    let mut all = vec![1];
    all.extend_from_slice(&77_i64.to_le_bytes());
    for (model, section) in [(KV, &keys), (EVENTS, &append), (KEYSPACES, &definition)] {
        all.push(model.0);
        put_u32(&mut all, section.len() as u32);
        all.extend_from_slice(section);
    }
    vec![all]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decodes_to_its_end() {
        let seed = &record_seeds()[0];
        let sections: Vec<_> = RecordBody::decode(seed).unwrap().sections().map(Result::unwrap).collect();
        let mut writes = 0;
        decode_section(sections[0].1, |_, _| writes += 1).unwrap();
        let append = AppendSection::decode(sections[1].1).unwrap();
        let events: Vec<_> = append.events().map(|event| event.unwrap().1.to_event()).collect();
        assert_eq!((writes, events.len()), (3, 2));
        assert_eq!(decode_definition(sections[2].1).unwrap().1, "name");
        assert_eq!((events[1].data.as_slice(), events[1].metadata.len()), (&b"data"[..], 1));
    }
}
