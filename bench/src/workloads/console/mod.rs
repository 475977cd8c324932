//! Appends during requests of the web console.

pub mod plan;
