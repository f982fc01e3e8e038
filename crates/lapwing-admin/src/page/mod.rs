//! The live page: a shell without figures at `/`, its script and style, and the stream that feeds it, `/stats/stream`.
//!
//! The files are part of the binary; nothing is fetched from elsewhere. `uplot.js` and `uplot.css` are uPlot 1.6.32, as published, by the
//! MIT licence in `uplot.LICENSE`.

mod stream;

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::answers::{Admin, accepts, text};

pub(crate) use stream::{STREAMS, stream};

pub(crate) const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// The page's own files, by path: content type and content.
pub(crate) const FILES: [(&str, &str, &str); 5] = [
    ("/page/page.js", SCRIPT, include_str!("page.js")),
    ("/page/views.js", SCRIPT, include_str!("views.js")),
    ("/page/uplot.js", SCRIPT, include_str!("uplot.js")),
    ("/page/page.css", STYLE, include_str!("page.css")),
    ("/page/uplot.css", STYLE, include_str!("uplot.css")),
];

/// Only these files run, style or are requested; no other page may frame this one.
const POLICY: [(HeaderName, HeaderValue); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

/// The paths of the files.
pub(crate) fn files() -> Router<Admin> {
    FILES
        .into_iter()
        .fold(Router::new(), |router, (path, kind, content)| router.route(path, get(async move || file(kind, content))))
}

/// The shell, for browsers; `list` for all others.
pub(crate) fn root(head: &HeaderMap, list: String) -> Response {
    if accepts(head, "text/html") {
        return file(HTML, include_str!("index.html"));
    }
    text(StatusCode::OK, list)
}

fn file(kind: &'static str, content: &'static str) -> Response {
    let mut response = ([(header::CONTENT_TYPE, kind)], content).into_response();
    response.headers_mut().extend(POLICY);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_loads_its_own_files_only() {
        let shell = include_str!("index.html");
        let all: usize = FILES.iter().map(|(_, _, content)| content.len()).sum();
        assert!(all + shell.len() < 150 << 10, "{all} bytes");
        let asked: Vec<_> = ["src=\"", "href=\""].into_iter().flat_map(|mark| shell.split(mark).skip(1)).collect();
        assert_eq!(asked.len(), FILES.len());
        for from in asked {
            let path = from.split('"').next().unwrap();
            assert!(FILES.iter().any(|(own, ..)| own.strip_prefix('/') == Some(path)), "{path}");
        }
    }

    #[test]
    fn no_script_makes_html_of_text() {
        for (path, _, content) in FILES.iter().filter(|(path, ..)| !path.contains("uplot")) {
            for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"] {
                assert!(!content.contains(way), "{path}: {way}");
            }
        }
    }
}
