//! HTTP parts that the APIs of the server share.
//!
//! ```text
//! request   media: Content-Type, Accept ─▶ encoding: Content-Encoding ─▶ body: received, then inflated
//!           params: query strings and forms
//! leader    requests that a follower sends to its leader
//! response  json ─▶ response: complete or in chunks, counted, with Retry-After; titles: of problems
//! ```
//!
//! An error is a reason without a form: each API has its wording, its status and its error body.
#![deny(missing_docs)]

pub mod body;
pub mod encoding;
pub mod json;
pub mod leader;
pub mod media;
pub mod params;
pub mod response;
pub mod titles;
