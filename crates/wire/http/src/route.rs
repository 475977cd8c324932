//! A row of the table of routes.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, on};
use ropewalk_auth::{Needs, Resource};
use utoipa_axum::router::UtoipaMethodRouter;

use crate::app::App;

/// The store that the path names.
pub(crate) const STORE: Resource = Resource::Path("store");
/// The database of documents that the path names.
pub(crate) const DATABASE: Resource = Resource::Path("database");

/// A path with its methods that need the same rights.
pub(crate) struct Route {
    pub(crate) needs: Needs,
    pub(crate) methods: UtoipaMethodRouter<App>,
    /// Method and path, for routes outside the OpenAPI document.
    pub(crate) undescribed: Option<(Method, String)>,
}

impl Route {
    /// A row whose methods and path come from the handlers of `routes!`.
    pub(crate) fn new(needs: Needs, methods: UtoipaMethodRouter<App>) -> Self {
        Self { needs, methods, undescribed: None }
    }

    /// A row outside the OpenAPI document.
    pub(crate) fn undescribed<T: 'static>(
        needs: Needs,
        method: Method,
        path: impl Into<String>,
        handler: impl Handler<T, App>,
    ) -> Self {
        let filter = MethodFilter::try_from(method.clone()).expect("the table has standard methods");
        let methods = (Vec::new(), Default::default(), on(filter, handler));
        Self { needs, methods, undescribed: Some((method, path.into())) }
    }

    /// Method and path of each operation.
    pub(crate) fn names(&self) -> Vec<String> {
        if let Some((method, path)) = &self.undescribed {
            return vec![format!("{method} {path}")];
        }
        let mut names = Vec::new();
        for (path, item) in &self.methods.1.paths {
            let methods = [
                ("GET", &item.get),
                ("PUT", &item.put),
                ("POST", &item.post),
                ("PATCH", &item.patch),
                ("DELETE", &item.delete),
            ];
            let there = methods.into_iter().filter(|(_, operation)| operation.is_some());
            names.extend(there.map(|(method, _)| format!("{method} {path}")));
        }
        names
    }
}
