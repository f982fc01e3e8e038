//! The command line, as users write it.

use clap::CommandFactory;
use clap::error::ErrorKind;

use clap::ValueEnum;

use super::*;
use crate::config::Flag;

fn parsed(line: &str) -> Result<Command, clap::Error> {
    parsed_with(line, &[])
}

fn parsed_with(line: &str, env: &[(&str, &str)]) -> Result<Command, clap::Error> {
    parse(line.split(' ').map(OsString::from), env.iter().map(|(name, value)| (name.into(), value.into())))
}

fn flag(path: &str, name: &str, text: &str) -> Flag {
    Flag { path: path.into(), name: name.into(), text: text.into() }
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn serving_needs_no_command() {
    let expected = Sources { flags: vec![flag("upstream", "--upstream", "http://m:1")], ..Sources::default() };
    assert_eq!(parsed("lapwing --upstream http://m:1").unwrap(), Command::Serve(expected.clone()));
    assert_eq!(parsed("lapwing serve --upstream http://m:1").unwrap(), Command::Serve(expected.clone()));
    assert_eq!(parsed("lapwing check --upstream http://m:1").unwrap(), Command::Check(expected));
    assert_eq!(parsed("lapwing").unwrap(), Command::Serve(Sources::default()));
}

#[test]
fn settings_stay_text() {
    let Command::Serve(sources) =
        parsed("lapwing serve --config l.yaml --otlp-grpc off --drain-timeout soon --respond-server-timing").unwrap()
    else {
        panic!("not serve")
    };
    assert_eq!(sources.file, Some("l.yaml".into()));
    assert_eq!(
        sources.flags,
        [
            flag("otlp_grpc", "--otlp-grpc", "off"),
            flag("respond_server_timing", "--respond-server-timing", "true"),
            flag("drain_timeout", "--drain-timeout", "soon"),
        ]
    );
}

#[test]
fn a_switch_may_be_turned_off_by_flag() {
    let Command::Serve(sources) = parsed("lapwing --respond-server-timing=false").unwrap() else { panic!("not serve") };
    assert_eq!(sources.flags, [flag("respond_server_timing", "--respond-server-timing", "false")]);
}

#[test]
fn only_variables_of_lapwing_are_kept_and_one_names_the_file() {
    let env = [("PATH", "/bin"), ("LAPWING_LISTEN", ":80"), ("LAPWING_CONFIG", "env.yaml")];
    let Command::Check(sources) = parsed_with("lapwing check", &env).unwrap() else { panic!("not check") };
    assert_eq!(sources.env.len(), 2);
    assert_eq!(sources.file, Some("env.yaml".into()));
    let Command::Check(sources) = parsed_with("lapwing check --config flag.yaml", &env).unwrap() else { panic!("not check") };
    assert_eq!(sources.file, Some("flag.yaml".into()));
}

#[test]
fn a_server_is_named_as_users_spell_it() {
    let flags = |server| UpstreamFlags { server, otlp_grpc: "127.0.0.1:4317".into(), otlp_http: "127.0.0.1:4318".into() };
    assert_eq!(parsed("lapwing upstream-flags").unwrap(), Command::UpstreamFlags(flags(None)));
    assert_eq!(parsed("lapwing upstream-flags vLLM").unwrap(), Command::UpstreamFlags(flags(Some(Server::Vllm))));
    let elsewhere = UpstreamFlags { otlp_http: "lapwing:4318".into(), ..flags(Some(Server::Triton)) };
    let line = "lapwing upstream-flags triton --otlp-http lapwing:4318";
    assert_eq!(parsed(line).unwrap(), Command::UpstreamFlags(elsewhere));
    let wrong = parsed("lapwing upstream-flags trition").unwrap_err().to_string();
    assert!(wrong.contains("did you mean `triton`?"), "{wrong}");
}

#[test]
fn help_and_version_are_no_mistakes_and_the_rest_is() {
    assert_eq!(parsed("lapwing --help").unwrap_err().kind(), ErrorKind::DisplayHelp);
    assert_eq!(parsed("lapwing --version").unwrap_err().kind(), ErrorKind::DisplayVersion);
    assert_eq!(parsed("lapwing --lsten :80").unwrap_err().kind(), ErrorKind::UnknownArgument);
    assert_eq!(parsed("lapwing --listen :80 demo").unwrap_err().kind(), ErrorKind::ArgumentConflict);
}

#[test]
fn help_states_every_default() {
    let config = serde_json::to_value(crate::config::Config::default()).unwrap();
    let help = Cli::command().render_help().to_string();
    for argument in Cli::command().get_arguments() {
        let path = argument.get_id().as_str();
        let Some(default) = config.get(path).filter(|value| path != "upstream" && !value.is_object()) else { continue };
        let text = argument.get_help().unwrap().to_string();
        let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
        assert!(text.ends_with(&format!("[default: {default}]")), "{path}: {text}");
        assert!(help.contains(&format!("--{}", path.replace('_', "-"))), "{path}");
    }
}

#[test]
fn every_shell_completes_every_command() {
    for shell in CompletionShell::value_variants() {
        let script = String::from_utf8(shell.script(Cli::command())).unwrap();
        for command in Cli::command().get_subcommands() {
            assert!(script.contains(command.get_name()), "{shell:?}: {}", command.get_name());
        }
        for flag in ["otlp-forward", "token-file", "window"] {
            assert!(script.contains(flag), "{shell:?}: --{flag}");
        }
    }
}
