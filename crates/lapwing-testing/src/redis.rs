//! Real servers of Redis, which end with the test that started them.

#![allow(clippy::disallowed_methods, reason = "a test waits for a server in real time")]

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether there is a Redis to test with; says so loudly where there is none.
fn is_installed() -> bool {
    let is_there = |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    let all = is_there("redis-server") && is_there("redis-cli");
    if !all {
        crate::not_run("redis-server and redis-cli are not installed");
    }
    all
}

/// A port that nobody listens at.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server, which ends with this.
#[derive(Debug)]
pub struct RedisServer {
    /// Where it listens, at 127.0.0.1.
    pub port: u16,
    /// Where its data is.
    pub folder: TempDir,
    options: Vec<String>,
    process: Child,
}

impl RedisServer {
    /// Starts one at a free port with these options of its command line, in which `FOLDER` is [`Self::folder`]. `None` if Redis is not
    /// installed, which is said.
    pub fn start(options: &[&str]) -> Option<Self> {
        is_installed().then(|| Self::start_at(free_port(), options))
    }

    /// Starts one at this port.
    pub fn start_at(port: u16, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options: Vec<_> = options.iter().map(|option| option.replace("FOLDER", folder.path().to_str().unwrap())).collect();
        let process = Self::spawn(port, &folder, &options);
        let server = Self { port, folder, options, process };
        server.wait();
        server
    }

    fn spawn(port: u16, folder: &TempDir, options: &[String]) -> Child {
        let mut command = Command::new("redis-server");
        // a sentinel is one with a file of its own
        if options.first().is_some_and(|first| first.ends_with(".conf")) {
            command.arg(&options[0]).args(["--port", &port.to_string()]).args(&options[1..]);
        } else {
            command.args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"]).args(options);
        }
        command.args(["--dir", folder.path().to_str().unwrap(), "--logfile", "log"]).stdout(Stdio::null()).spawn().unwrap()
    }

    fn wait(&self) {
        let since = Instant::now();
        let has_tls = self.options.iter().any(|option| option == "--tls-port");
        while !has_tls && !matches!(self.cli(&["PING"]).trim(), "PONG" | "NOAUTH Authentication required.") {
            assert!(since.elapsed() < PATIENCE, "{}", fs::read_to_string(self.folder.path().join("log")).unwrap_or_default());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the server answers to a command.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.process.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again where it was.
    pub fn restart(&mut self) {
        self.process = Self::spawn(self.port, &self.folder, &self.options);
        self.wait();
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Writes a file beside its data, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path.display().to_string()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
