//! An order service in one process: `cargo run -p ropewalk --example order-service -- [DIRECTORY]`.
#![allow(clippy::print_stdout)] // the example reports to a terminal

mod readers;
mod service;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ropewalk::Database;

use crate::readers::{Board, mailer, send_mails};
use crate::service::{STORE, add_stock, board, pay, place, revenue, ship};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = match std::env::args().nth(1) {
        Some(directory) => Database::open(directory)?,
        None => Database::in_memory()?,
    };
    let projections = db.projections(STORE)?;
    projections.register("board", Arc::new(Board))?;
    let following = projections.start();

    let order = format!("o{}", db.seq());
    add_stock(&db, "rope", 5)?;
    place(&db, &order, "rope", 2, 1990, "ann@example.org")?;
    pay(&db, &order)?;
    ship(&db, &order)?;
    if let Err(refusal) = ship(&db, &order) {
        println!("refused: {refusal}");
    }
    let mailer = mailer(&db)?;
    let print = |to: &str, text: &str| {
        println!("to {to}: {text}");
        Ok(())
    };
    while send_mails(&mailer, Duration::ZERO, print)? > 0 {}
    drop(following);
    projections.catch_up("board")?;
    println!("{:?} {:?}", board(&db)?, revenue(&db)?);
    Ok(())
}
