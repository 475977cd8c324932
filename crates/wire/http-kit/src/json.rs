//! JSON written into the buffer that is sent.

/// Writes a whole number.
pub fn put_number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes `[…]`, with commas between the items.
pub fn put_list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, put: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    put_items(out, items, put);
    out.push(b']');
}

/// Writes `{…}` with texts, `put` writing one text.
pub fn put_texts<'a>(
    out: &mut Vec<u8>,
    fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    put: impl Fn(&mut Vec<u8>, &str),
) {
    out.push(b'{');
    put_items(out, fields, |out, (name, value)| {
        put(out, name);
        out.push(b':');
        put(out, value);
    });
    out.push(b'}');
}

fn put_items<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, mut put: impl FnMut(&mut Vec<u8>, T)) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put(out, item);
    }
}
