//! What Lapwing itself says of the trouble: the summary of `/diagnosis`, which a client asks for like any other.

use std::net::SocketAddr;

use http::StatusCode;

use crate::client::HttpClient;
use lapwing_diagnosis::Diagnosis;

/// The summary of the series that lost most time; `None` where the admin address has no such path or no series.
pub(crate) async fn summary(admin: SocketAddr) -> Option<String> {
    let (status, body) = HttpClient::new(admin).get("/diagnosis?format=json").await.ok()?;
    if status != StatusCode::OK {
        return None;
    }
    let diagnosis: Diagnosis = serde_json::from_slice(&body).ok()?;
    diagnosis.routes.into_iter().next().map(|route| route.summary).filter(|summary| !summary.is_empty())
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::task::JoinSet;

    use super::*;
    use lapwing_diagnosis::RouteDiagnosis;

    #[tokio::test]
    async fn the_first_series_is_told_and_a_path_that_is_missing_is_not() {
        let route = |summary: &str| RouteDiagnosis { summary: summary.to_owned(), ..RouteDiagnosis::default() };
        let routes = vec![route("queue-bound"), route("other")];
        let said = Diagnosis { window_seconds: 60.0, routes, ..Diagnosis::default() };
        let said = serde_json::to_string(&said).unwrap();
        let mut tasks = JoinSet::new();
        let mut serve = async |router: Router| {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tasks.spawn(axum::serve(listener, router).into_future());
            address
        };
        let with = serve(Router::new().route("/diagnosis", get(move || async move { said }))).await;
        let without = serve(Router::new()).await;
        assert_eq!(summary(with).await.as_deref(), Some("queue-bound"));
        assert_eq!(summary(without).await, None);
    }
}
