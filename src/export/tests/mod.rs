//! The admin surfaces over a registry with known exchanges.

mod debt;
pub(super) mod fixture;
mod surfaces;
mod work;
