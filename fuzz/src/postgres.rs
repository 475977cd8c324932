//! Input from a client of the PostgreSQL protocol: a message, and a value in each type and format.

pub(crate) fn message(data: &[u8]) {
    ropewalk_postgres::fuzzing::message(data);
}

/// A tag and a body: Parse, Bind with two values, Describe, Execute; then values in binary.
pub(crate) fn message_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 8] = [
        b"Ps\0SELECT $1\0\0\x01\0\0\0\x17",
        b"Bp\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\x01\0\x01",
        b"DSs\0",
        b"Ep\0\0\0\0\x10",
        b"QSELECT 1\0",
        // numeric 12345.678, integer[] {1,NULL}, text
        b"d\0\x03\0\x01\0\0\0\x03\0\x01\x09\x29\x1a\x7c",
        b"d\0\0\0\x01\0\0\0\x01\0\0\0\x17\0\0\0\x02\0\0\0\x01\0\0\0\x04\0\0\0\x01\xff\xff\xff\xff",
        b"d2024-02-29 12:00:00+00",
    ];
    seeds.iter().map(|seed| seed.to_vec()).collect()
}
