//! The admin surfaces over a registry with known exchanges.

mod cache;
mod debt;
mod diagnosis;
mod dispatch;
pub(crate) mod fixture;
mod openapi;
mod otlp;
mod page;
mod shadow;
mod split;
mod surfaces;
mod trials;
mod work;
