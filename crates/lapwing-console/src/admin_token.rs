//! Reads the admin token from its file, for the server and for the commands that ask it.

use std::fs;
use std::io::Read;
use std::path::Path;

use clap::Args;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use http::request::Builder;

use lapwing_settings::{AdminToken, File, Secret, Switch};

/// Where a command finds the token.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenArgs {
    /// File with the admin token of the running Lapwing (its setting admin_token_file); needed from another machine
    /// [env: LAPWING_ADMIN_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    token_file: Option<std::path::PathBuf>,
}

impl TokenArgs {
    /// The variable that stands for the flag; the server reads the same one.
    const VARIABLE: &'static str = "LAPWING_ADMIN_TOKEN_FILE";

    /// Adds the token to a request, if there is one.
    ///
    /// # Errors
    ///
    /// If the file has none.
    pub(crate) fn sign(&self, request: Builder) -> Result<Builder, String> {
        let variable = || std::env::var_os(Self::VARIABLE).filter(|path| !path.is_empty() && path != "off").map(Into::into);
        let Some(path) = self.token_file.clone().or_else(variable) else { return Ok(request) };
        let token = read(&path)?;
        let mut value = HeaderValue::try_from(token.authorization()).map_err(|_| "the token is no header value".to_owned())?;
        value.set_sensitive(true);
        Ok(request.header(AUTHORIZATION, value))
    }
}

/// The token of the settings `admin_token` and `admin_token_file`, of which at most one is on.
///
/// # Errors
///
/// If there is no token where one should be; the message names the setting.
pub fn of(token: &Switch<Secret>, file: &Switch<File>) -> Result<Option<AdminToken>, String> {
    let given = token.on().map(|token| AdminToken::parse(token.expose()).map_err(|reason| format!("admin_token: {reason}")));
    let read = file.on().map(|file| read(file.path()).map_err(|reason| format!("admin_token_file: {reason}")));
    given.or(read).transpose()
}

/// The token in this file.
///
/// # Errors
///
/// If the file cannot be read or has no token; the message names the file, and never the token.
pub(crate) fn read(path: &Path) -> Result<AdminToken, String> {
    let named = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let mut text = String::new();
    // room for white space around it; anything longer is no token
    let most = 2 * AdminToken::MAX as u64;
    let file = fs::File::open(path).map_err(|error| named(&error))?;
    file.take(most).read_to_string(&mut text).map_err(|error| named(&error))?;
    AdminToken::parse(&text).map_err(|reason| named(&reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_token_is_named_and_its_text_is_not() {
        let path = std::env::temp_dir().join(format!("lapwing-token-{}", std::process::id()));
        fs::write(&path, "hunter2\n").unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.contains("lapwing-token-") && error.contains("fewer than 16") && !error.contains("hunter2"), "{error}");
        fs::write(&path, "x".repeat(1 << 20)).unwrap();
        assert!(read(&path).unwrap_err().contains("more than 4096"));
        fs::write(&path, "correct-horse-battery\n").unwrap();
        assert!(read(&path).unwrap().is(b"correct-horse-battery"));
        fs::remove_file(&path).unwrap();
        assert!(read(&path).unwrap_err().contains("lapwing-token-"));
    }
}
