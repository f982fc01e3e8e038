//! temporary
use std::time::Duration;
#[derive(Debug, Clone, Copy)]
pub struct Period(pub Duration);
impl Period {
    pub fn get(self) -> Duration {
        self.0
    }
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamProtocol {
    Auto,
    H1,
    H2,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceSampling {
    Auto,
    Force,
    Off,
}
#[derive(Debug, Clone)]
pub struct Config {
    pub upstream_protocol: UpstreamProtocol,
    pub connect_timeout: Period,
    pub header_timeout: Period,
    pub idle_timeout: Period,
    pub client_header_timeout: Period,
    pub client_idle_timeout: Period,
    pub pool_idle_timeout: Period,
    pub max_in_flight: u64,
    pub max_header_bytes: Bytes_,
    pub max_request_bytes: Option<u64>,
    pub trace_sampling: TraceSampling,
    pub respond_server_timing: bool,
    pub workers: usize,
    pub tcp_backlog: u32,
}
impl Default for Config {
    fn default() -> Self {
        let s = |n| Period(Duration::from_secs(n));
        Self {
            upstream_protocol: UpstreamProtocol::Auto,
            connect_timeout: s(5),
            header_timeout: s(300),
            idle_timeout: s(300),
            client_header_timeout: s(30),
            client_idle_timeout: s(300),
            pool_idle_timeout: s(3),
            max_in_flight: 4096,
            max_header_bytes: Bytes_(65536),
            max_request_bytes: None,
            trace_sampling: TraceSampling::Auto,
            respond_server_timing: false,
            workers: 1,
            tcp_backlog: 1024,
        }
    }
}
#[derive(Debug, Clone, Copy)]
pub struct Bytes_(pub u64);
impl Bytes_ {
    pub fn get(self) -> u64 {
        self.0
    }
}
