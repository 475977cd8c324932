//! Names under which rebuilds of projections write tables and collections until these replace the live ones.
//!
//! The names are reserved: a user who took the name that the next rebuild needs would stop that rebuild.

/// Separates the name of the live object from the number of the generation.
const SEPARATOR: &str = "__g";

/// The name under which a rebuild writes the object `name`.
pub fn rebuild_name(name: &str, generation: u64) -> String {
    format!("{name}{SEPARATOR}{generation}")
}

/// True for a name that a rebuild may need: it ends in `__g` and digits.
pub fn is_rebuild_name(name: &str) -> bool {
    let generation = name.rsplit_once(SEPARATOR).map_or("", |(_, generation)| generation);
    !generation.is_empty() && generation.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_end_in_generation_are_reserved() {
        for name in ["t", "a__g1", "__g"] {
            assert!(is_rebuild_name(&rebuild_name(name, 17)));
        }
        for name in ["", "t", "t__g", "t__g1x", "t_g1", "t__G1", "t__g1_old", "t__g\u{661}"] {
            assert!(!is_rebuild_name(name), "{name}");
        }
    }
}
