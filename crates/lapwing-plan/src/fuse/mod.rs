//! Fusion: nodes that one kernel can compute in one pass over its rows become one node. Every step keeps the plan valid
//! and its results the same. No step looks at names.

mod activation;
mod embed;
mod epilogue;
mod maps;
mod norm;
mod pool;
mod qkv;
mod rewrite;
mod share;
mod simple;

use self::rewrite::prune;
use crate::plan::Plan;

/// Fuses a lowered plan.
pub fn fuse(plan: &mut Plan) {
    prune(plan);
    share::merge(plan);
    maps::steady(plan);
    activation::find(plan);
    norm::find(plan);
    pool::find(plan);
    prune(plan);
    while epilogue::absorb(plan) {}
    while embed::merge(plan) {}
    while norm::add(plan) {}
    while embed::norm(plan) {}
    qkv::merge(plan);
    embed::uncut(plan);
    maps::uncopy(plan);
    prune(plan);
    while maps::inline(plan) {}
    prune(plan);
    share::merge(plan);
    prune(plan);
}
