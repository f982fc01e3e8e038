//! The admin surfaces over a registry with known exchanges.

pub(super) mod fixture;
mod shadow;
mod surfaces;
mod work;
