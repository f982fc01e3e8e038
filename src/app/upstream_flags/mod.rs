//! `lapwing upstream-flags`: prints how to make a model server report its stages, what it then reports, and what it does not.

use std::io::{self, Write};

use super::check::USAGE;
use lapwing_ledger::Server;

mod texts;

/// What a user who forwards spans to a collector has to know, of every server that sends spans.
const SAMPLER: &str = "\
If otlp_forward is set, and the server or its other services sample traces, tell Lapwing the same sampler:
OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.1 lapwing …";

/// Below this likeness a suggestion would only confuse.
const LIKE: f64 = 0.5;

/// What to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamFlags {
    /// The server; `None` lists all servers.
    pub server: Option<Server>,
    /// Where Lapwing receives spans over gRPC, host and port.
    pub otlp_grpc: String,
    /// Where it receives them over HTTP, host and port.
    pub otlp_http: String,
}

/// Returns the server that `name` names. Case, `-`, `_`, `.` and spaces are ignored, and short names are known.
///
/// # Errors
///
/// For an unknown name: the most similar name, if there is one, and all known names.
pub(crate) fn server(name: &str) -> Result<Server, String> {
    let wanted = folded(name);
    let known = || Server::ALL.iter().flat_map(|server| spellings(*server).map(move |spelling| (spelling, *server)));
    if let Some((_, server)) = known().find(|(spelling, _)| *spelling == wanted) {
        return Ok(server);
    }
    let likeness = |spelling: &str| strsim::normalized_damerau_levenshtein(spelling, &wanted);
    let best = known().map(|(spelling, server)| (likeness(&spelling), server)).max_by(|a, b| a.0.total_cmp(&b.0));
    let meant = best.filter(|(likeness, _)| *likeness >= LIKE);
    let meant = meant.map_or_else(String::new, |(_, server)| format!(" did you mean `{}`?", server.name()));
    let names: Vec<&str> = Server::ALL.iter().map(|server| server.name()).collect();
    Err(format!("unknown server;{meant} known are {}", names.join(", ")))
}

/// Checks that `text` is a host and a port at which another machine may reach Lapwing.
///
/// # Errors
///
/// If it is not.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let is_host = !host.is_empty() && !host.contains(['/', ' ']);
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if is_host && is_port { Ok(text.to_owned()) } else { Err("needs host:port, as in 127.0.0.1:4317".to_owned()) }
}

/// Returns the accepted spellings of a server's name.
fn spellings(server: Server) -> impl Iterator<Item = String> {
    let short: &[&str] = match server {
        Server::LlamaCpp => &["llama", "llamaserver"],
        Server::TfServing => &["tf", "tfserving"],
        Server::RayServe => &["ray"],
        Server::BentoMl => &["bento"],
        Server::TensorRtLlm => &["trtllm", "trtllmserve"],
        _ => &[],
    };
    let short = short.iter().map(|name| (*name).to_owned());
    [folded(server.name()), folded(server.title())].into_iter().chain(short)
}

fn folded(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Prints what `args` ask for to standard output and returns the exit code.
pub(crate) fn print(args: &UpstreamFlags) -> i32 {
    // standard output cannot be written: there is nowhere to report that
    write(args, &mut io::stdout().lock()).map_or(USAGE, |()| 0)
}

fn write(args: &UpstreamFlags, out: &mut impl Write) -> io::Result<()> {
    if let Some(server) = args.server {
        out.write_all(about(server, args).as_bytes())?;
        return out.flush();
    }
    for server in Server::ALL {
        writeln!(out, "{:<20} {}", server.name(), texts::of(*server).summary)?;
    }
    writeln!(out, "\nlapwing upstream-flags SERVER    prints how to turn it on")?;
    out.flush()
}

/// Returns the whole description of a server.
fn about(server: Server, args: &UpstreamFlags) -> String {
    let texts::Text { summary, setup, reported, missing } = texts::of(server);
    let indented = |text: &str| text.lines().map(|line| format!("  {line}\n")).collect::<String>();
    let sends_spans = ["{grpc}", "{http}"].iter().any(|receiver| setup.contains(receiver));
    let sampler = if sends_spans { indented(SAMPLER) } else { String::new() };
    let setup = setup.replace("{grpc}", &args.otlp_grpc).replace("{http}", &args.otlp_http);
    format!(
        "{}: {summary}\n\nTurn it on:\n{}{sampler}\nWhat it reports then:\n{}\nWhat it does not report:\n{}",
        server.title(),
        indented(&setup),
        indented(reported),
        indented(missing)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(server: Option<Server>) -> UpstreamFlags {
        UpstreamFlags { server, otlp_grpc: "lapwing:14317".to_owned(), otlp_http: "lapwing:14318".to_owned() }
    }

    fn printed(server: Option<Server>) -> String {
        let mut out = Vec::new();
        write(&args(server), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_server_is_listed_and_described() {
        let list = printed(None);
        for server in Server::ALL {
            assert!(list.contains(&format!("{:<20} ", server.name())), "{server:?}");
            let text = printed(Some(*server));
            assert!(text.starts_with(server.title()), "{text}");
            for part in ["\nTurn it on:\n  ", "\nWhat it reports then:\n  ", "\nWhat it does not report:\n  "] {
                assert!(text.contains(part), "{server:?}: {part}");
            }
            assert!(text.lines().all(|line| line.chars().count() <= 110), "{server:?} has long lines:\n{text}");
            assert!(!text.contains("{grpc}") && !text.contains("{http}"), "{text}");
            let (sends_spans, names_sampler) = (text.contains("lapwing:1431"), text.contains("\n  OTEL_TRACES_SAMPLER="));
            assert_eq!((sends_spans, sends_spans), (names_sampler, server.sends_spans()), "{text}");
        }
    }

    #[test]
    fn the_addresses_are_lapwings_own() {
        let triton = printed(Some(Server::Triton));
        assert!(triton.contains("--trace-config opentelemetry,url=http://lapwing:14318/v1/traces"), "{triton}");
        let vllm = printed(Some(Server::Vllm));
        assert!(vllm.contains("--otlp-traces-endpoint grpc://lapwing:14317"), "{vllm}");
    }

    #[test]
    fn names_are_found_however_spelt() {
        for known in Server::ALL {
            assert_eq!(server(known.name()), Ok(*known));
            assert_eq!(server(known.title()), Ok(*known));
        }
        for (name, known) in [
            ("Triton", Server::Triton),
            ("llama-cpp", Server::LlamaCpp),
            ("tf_serving", Server::TfServing),
            ("TensorFlow Serving", Server::TfServing),
            ("trtllm", Server::TensorRtLlm),
            ("TGI", Server::Tgi),
        ] {
            assert_eq!(server(name), Ok(known), "{name}");
        }
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:4317", "lapwing:4318", "[::1]:4317"] {
            assert_eq!(address(good).as_deref(), Ok(good));
        }
        for wrong in ["", "4317", ":4317", "lapwing:", "lapwing:0", "lapwing:99999", "http://lapwing:4317", "http://x:/"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_names() {
        let error = server("vlm").unwrap_err();
        assert!(error.starts_with("unknown server; did you mean `vllm`? known are triton, vllm, "), "{error}");
        let error = server("apache").unwrap_err();
        assert!(error.starts_with("unknown server; known are triton, "), "{error}");
    }
}
