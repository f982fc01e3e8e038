//! Starts servers, and asks them by `redis-cli`.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lapwing_redis::{QueueBounds, RedisClient, RedisConfig, RedisWrite};
use tempfile::TempDir;
use tokio::task::JoinSet;

pub(crate) const DEADLINE: Duration = Duration::from_millis(50);
/// How long a test waits for what happens in the background.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether there is a Redis to test with; says so loudly where there is none.
pub(crate) fn is_there() -> bool {
    let is_there = |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    let all = is_there("redis-server") && is_there("redis-cli");
    if !all {
        lapwing_testing::not_run("redis-server and redis-cli are not installed");
    }
    all
}

/// A port that nobody listens at.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server, which ends with this.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) folder: TempDir,
    options: Vec<String>,
    process: Child,
}

impl Server {
    /// Starts one at a free port with these options of its command line.
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_at(free_port(), options)
    }

    pub(crate) fn start_at(port: u16, options: &[&str]) -> Self {
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
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.process.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again where it was.
    pub(crate) fn restart(&mut self) {
        self.process = Self::spawn(self.port, &self.folder, &self.options);
        self.wait();
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Writes a file beside its data, and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path.display().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client whose background runs as long as this is there.
pub(crate) struct Running {
    pub(crate) client: RedisClient,
    _background: JoinSet<()>,
}

/// A client of the Redis that `config` names.
pub(crate) fn client(config: serde_json::Value) -> Running {
    let config: RedisConfig = serde_json::from_value(config).unwrap();
    let bounds = QueueBounds { entries: 8, bytes: 1 << 20 };
    let (client, keeper) = RedisClient::new("cache.redis", config.target().unwrap(), bounds, b"lapwing:probe".to_vec()).unwrap();
    let mut background = JoinSet::new();
    background.spawn(keeper.run());
    Running { client, _background: background }
}

impl Running {
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&RedisClient) -> bool) {
        let since = Instant::now();
        while !is_so(&self.client) {
            assert!(since.elapsed() < PATIENCE, "{what}: {:?}", self.client.counts());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn until_up(&self) {
        self.until("is not connected", |client| client.counts().is_up).await;
    }

    /// Writes, and waits until it is written.
    pub(crate) async fn write(&self, key: &str, value: &str) {
        let before = self.client.counts().written;
        assert!(self.client.write_behind(write(key, value)));
        self.until("is not written", |client| client.counts().written > before).await;
    }

    pub(crate) async fn read(&self, key: &str) -> Option<String> {
        let values = self.client.get(&[key], DEADLINE).await.unwrap();
        values[0].as_ref().map(|value| String::from_utf8(value.to_vec()).unwrap())
    }
}

pub(crate) fn write(key: &str, value: &str) -> RedisWrite {
    let kept = Duration::from_secs(60);
    let made = Bytes::from(value.to_owned());
    RedisWrite { key: key.into(), bytes: value.len() as u64, make: Box::new(move || Some((made, kept))) }
}
