//! `cluster remove`.

use crate::command::cluster::server;
use crate::database::context::Context;
use crate::output::cell::Cell;
use crate::output::failure::Result;

pub(crate) fn remove(context: &Context, node: &str) -> Result {
    let removed = server(context)?.remove_node(node)?;
    let addresses = removed.addresses.map_or(Cell::None, Cell::List);
    context.print_row(
        &["node", "addresses", "reports"],
        vec![removed.node.into(), addresses, removed.reports.into()],
    )
}
