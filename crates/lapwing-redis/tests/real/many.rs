//! A cluster, and a master that sentinels look after.

use std::process::Command;
use std::time::Duration;

use lapwing_redis::RedisPipeline;
use lapwing_testing::{RedisServer, free_port};
use serde_json::json;

use crate::running::{DEADLINE, client};

#[tokio::test]
async fn keys_of_a_cluster_are_where_they_belong() {
    let start = |_| {
        let bus = free_port().to_string();
        RedisServer::start(&["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "2000"])
    };
    let Some(servers) = (0..3).map(start).collect::<Option<Vec<_>>>() else { return };
    let addresses: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    let mut create = Command::new("redis-cli");
    let made = create
        .args(["--cluster", "create"])
        .args(&addresses)
        .args(["--cluster-yes", "--cluster-replicas", "0"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    let nodes: Vec<_> = servers[1..].iter().map(RedisServer::url).collect();
    let running = client(json!({"url": servers[0].url(), "cluster": true, "nodes": nodes}));
    running.until_up().await;
    let keys: Vec<_> = (0..8).map(|at| format!("lapwing:{at}")).collect();
    for key in &keys {
        running.write(key, &key.to_uppercase()).await;
    }
    let values = running.client.get(&keys, Duration::from_secs(1)).await.unwrap();
    let expected: Vec<_> = keys.iter().map(|key| Some(key.to_uppercase().into())).collect();
    assert_eq!(values, expected, "in their order, from three nodes");
    let sizes: Vec<u32> = servers.iter().map(|server| server.cli(&["DBSIZE"]).trim().parse().unwrap()).collect();
    assert!(sizes.iter().all(|size| *size > 0) && sizes.iter().sum::<u32>() == 8, "{sizes:?}");
    let mut commands = RedisPipeline::new();
    keys.iter().for_each(|key| {
        commands.cmd("STRLEN").arg(key);
    });
    commands.cmd("LLEN").arg(&keys[0]);
    let lengths = running.client.run(&commands, Duration::from_secs(1)).await.unwrap();
    assert_eq!(lengths[..8], vec![lapwing_redis::RedisValue::Int(9); 8]);
    assert!(matches!(&lengths[8], lapwing_redis::RedisValue::ServerError(error) if error.code() == "WRONGTYPE"), "{lengths:?}");
}

/// A sentinel of the master at `port`.
fn sentinel(port: u16) -> Option<RedisServer> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sentinel.conf");
    let text = format!(
        "sentinel monitor mymaster 127.0.0.1 {port} 1\nsentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout \
         mymaster 3000\n"
    );
    std::fs::write(&file, text).unwrap();
    let server = RedisServer::start(&[file.to_str().unwrap(), "--sentinel"]);
    // it writes its file again and again
    std::mem::forget(folder);
    server
}

#[tokio::test]
async fn the_master_that_sentinels_chose_is_found() {
    let Some(mut master) = RedisServer::start(&[]) else { return };
    let Some(replica) = RedisServer::start(&["--replicaof", &format!("127.0.0.1 {}", master.port)]) else { return };
    let Some(first) = sentinel(master.port) else { return };
    let gone = free_port();
    let running = client(json!({"url": format!("redis://127.0.0.1:{gone}"), "nodes": [first.url()], "sentinel": "mymaster"}));
    running.until_up().await;
    running.write("lapwing:a", "one").await;
    assert_eq!(running.read("lapwing:a").await.as_deref(), Some("one"));
    assert_eq!(master.cli(&["WAIT", "1", "5000"]).trim(), "1");
    // the sentinel has to know the replica before the master goes
    let mut tries = 0;
    while !first.cli(&["SENTINEL", "REPLICAS", "mymaster"]).contains(&replica.port.to_string()) {
        tries += 1;
        assert!(tries < 300, "the sentinel does not find the replica");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    master.kill();
    let _ = running.client.get(&["lapwing:a"], DEADLINE).await;
    running.until("is not connected again", |client| client.counts().connects == 2).await;
    assert!(replica.cli(&["ROLE"]).starts_with("master"));
    running.write("lapwing:b", "two").await;
    assert_eq!(running.read("lapwing:a").await.as_deref(), Some("one"), "it was replicated");
}
