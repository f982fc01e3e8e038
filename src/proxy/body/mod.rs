//! Bodies on their way: the request's to the upstream, the response's to the client.

pub(crate) mod chunk;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod rewrite;
