//! Which Redis is meant, and the files that are read to reach it.

use std::fs;
use std::io::Read;

use lapwing_settings::{ClientTls, Fault, File, RedisAddress, Secret};

/// The largest password, and the largest secret.
const MAX_SECRET: usize = 4_096;
/// The fewest bytes of a secret that keys are made with.
const MIN_SECRET: usize = 32;
/// The largest file of certificates.
const MAX_PEM: u64 = 1 << 20;

/// Which Redis is meant. [`crate::RedisConfig::target`] makes it of a section; other sections may make their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisTarget {
    /// It, one of its nodes, or a sentinel; with the user and the database.
    pub url: RedisAddress,
    /// Further nodes of a cluster, or further sentinels.
    pub nodes: Vec<RedisAddress>,
    /// Whether it is a cluster.
    pub is_cluster: bool,
    /// The name of the master that sentinels know.
    pub sentinel: Option<String>,
    /// Has the password of the user.
    pub password_file: Option<File>,
    /// Has the password of the sentinels.
    pub sentinel_password_file: Option<File>,
    /// The authorities of servers, and the certificate that they are shown.
    pub tls: ClientTls,
}

/// The password in a file, without white space around it. It is read for each connection, so a new one needs no restart.
///
/// # Errors
///
/// Why there is none; never with the password.
pub(crate) fn password(section: &str, field: &str, file: &File) -> Result<Secret, Fault> {
    let fault = |reason: &str| Fault::new(format!("{section}.{field}"), file.to_string(), reason);
    let bytes = bytes_of(section, field, file, MAX_SECRET as u64)?;
    let text = String::from_utf8(bytes).map_err(|_| fault("has a password that is not UTF-8"))?;
    match text.trim() {
        "" => Err(fault("has no password in it")),
        password => Ok(Secret::new(password)),
    }
}

/// The bytes of a secret in a file, without white space around them, so that an editor's last line end makes no difference.
///
/// # Errors
///
/// Why they cannot be used; never with the secret.
pub fn shared_secret(section: &str, field: &str, file: &File) -> Result<Vec<u8>, Fault> {
    let bytes = bytes_of(section, field, file, MAX_SECRET as u64)?;
    let secret = bytes.trim_ascii();
    if secret.len() < MIN_SECRET {
        let reason = format!("has a secret of {} bytes; it needs at least {MIN_SECRET}, which nobody can guess", secret.len());
        return Err(Fault::new(format!("{section}.{field}"), file.to_string(), reason));
    }
    Ok(secret.to_vec())
}

/// A file of certificates or a key.
pub(crate) fn pem(section: &str, field: &str, file: &File) -> Result<Vec<u8>, Fault> {
    bytes_of(section, field, file, MAX_PEM)
}

fn bytes_of(section: &str, field: &str, file: &File, most: u64) -> Result<Vec<u8>, Fault> {
    let fault = |reason: String| Fault::new(format!("{section}.{field}"), file.to_string(), reason);
    let opened = fs::File::open(file.path()).map_err(|error| fault(error.to_string()))?;
    let mut bytes = Vec::new();
    opened.take(most + 1).read_to_end(&mut bytes).map_err(|error| fault(error.to_string()))?;
    if bytes.len() as u64 > most { Err(fault(format!("has more than {most} bytes"))) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &[u8]) -> (tempfile::TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, text).unwrap();
        (folder, path.display().to_string().parse().unwrap())
    }

    #[test]
    fn secrets_are_read_without_the_end_of_their_line() {
        let (_folder, with) = file(b" hunter2hunter2hunter2hunter2hunter2\n");
        assert_eq!(shared_secret("s", "f", &with).unwrap(), b"hunter2hunter2hunter2hunter2hunter2");
        assert_eq!(password("s", "f", &with).unwrap().expose(), "hunter2hunter2hunter2hunter2hunter2");
    }

    #[test]
    fn what_cannot_be_used_is_named_and_not_shown() {
        let long = vec![b'x'; MAX_SECRET + 1];
        for (text, says) in
            [(&b"hunter2\n"[..], "a secret of 7 bytes"), (&long, "more than 4096 bytes"), (b"", "a secret of 0 bytes")]
        {
            let (_folder, file) = file(text);
            let fault = shared_secret("cache.redis", "secret_file", &file).unwrap_err().to_string();
            assert!(
                fault.starts_with("cache.redis.secret_file: ") && fault.contains(says) && !fault.contains("hunter2"),
                "{fault}"
            );
        }
        let (folder, empty) = file(b"\n");
        assert!(password("s", "f", &empty).unwrap_err().reason.contains("no password"));
        drop(folder);
        assert!(password("s", "f", &empty).unwrap_err().reason.contains("No such file"));
    }
}
