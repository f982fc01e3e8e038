//! The admin surfaces over a registry with known exchanges.

pub(super) mod fixture;
mod surfaces;
mod work;
