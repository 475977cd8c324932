use core::task::{Context, Poll};

use http::uri::PathAndQuery;
use http::{Request, Uri};
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

/// The path of UmaDB's service before it had versions; older clients still call it.
pub(crate) const OLD: &str = "/umadb.UmaDBService/";
/// The current path.
pub(crate) const NEW: &str = "/umadb.v1.DCB/";

/// The DCB service under its older path.
#[derive(Clone)]
pub(crate) struct Alias<S>(pub(crate) S);

impl<S> NamedService for Alias<S> {
    const NAME: &'static str = "umadb.UmaDBService";
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for Alias<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // A URI that is not renamed is passed on, and the service rejects it as unknown.
        if let Some(uri) = renamed(request.uri()) {
            *request.uri_mut() = uri;
        }
        self.0.call(request)
    }
}

fn renamed(uri: &Uri) -> Option<Uri> {
    let path = format!("{NEW}{}", uri.path().strip_prefix(OLD)?);
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_service_is_renamed() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let new = renamed(&uri("http://h:1/umadb.UmaDBService/Read")).unwrap();
        assert_eq!(new, uri("http://h:1/umadb.v1.DCB/Read"));
        assert_eq!(renamed(&uri("/umadb.UmaDBService/Head")).unwrap(), uri("/umadb.v1.DCB/Head"));
        assert_eq!(renamed(&uri("/umadb.v1.DCB/Head")), None);
    }
}
