//! Ray Serve: spans of its proxy and its replicas, histograms in milliseconds.

use super::row::{Carrier, Row, Says, Scale};
use crate::ledger::{Server, Stage};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::RayServe, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    // to the start of the replica's span below it; the proxy's where no other comes between
    row(Carrier::Span("proxy_route_to_replica *"), Says::Stage(Stage::Queue), Scale::Ns),
    row(Carrier::Span("proxy_http_request *"), Says::Total, Scale::Ns),
    row(Carrier::Span("proxy_grpc_request *"), Says::Total, Scale::Ns),
    // the deployment's own code, all of it: spans inside it own what is theirs
    row(Carrier::Span("replica_handle_request *"), Says::Stage(Stage::Forward), Scale::Ns),
    // waiting for a replica, then in it for a batch
    row(Carrier::Metric("ray_serve_request_router_fulfillment_time_ms"), Says::Stage(Stage::Queue), Scale::Ms),
    row(Carrier::Metric("ray_serve_batch_wait_time_ms"), Says::Stage(Stage::Queue), Scale::Ms).adds_up(),
    row(Carrier::Metric("ray_serve_batch_execution_time_ms"), Says::Stage(Stage::Forward), Scale::Ms),
    row(Carrier::Metric("ray_serve_deployment_processing_latency_ms"), Says::Stage(Stage::Forward), Scale::Ms).includes_queue(),
    row(Carrier::Metric("ray_serve_http_request_latency_ms"), Says::Total, Scale::Ms),
    row(Carrier::Metric("ray_serve_actual_batch_size"), Says::BatchSize, Scale::Count),
    row(Carrier::Metric("ray_serve_replica_processing_queries"), Says::Running, Scale::Count),
    row(Carrier::Metric("ray_serve_deployment_queued_queries"), Says::Waiting, Scale::Count),
];
