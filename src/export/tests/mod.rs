//! The admin surfaces over a registry with known exchanges.

mod debt;
pub(super) mod fixture;
mod shadow;
mod surfaces;
mod work;
