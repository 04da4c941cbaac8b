//! Hooks: signed approvals of promotions, and requests to look at promotions. The client here is a plain socket, so that a test can send
//! what no library sends, and can compare answers byte by byte.

mod approving;
mod keys;
mod limits;
mod looks;
mod outages;
mod refused;
mod teams;

use std::net::{Ipv4Addr, SocketAddr};

use relaybook_api::promotion::{Phase, WaitingApproval};
use relaybook_api::{Pipeline, Promotion, Time};
use ring::hmac;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::relaybook::Options;
use crate::support::world::apps::Kind;
use crate::support::world::pipeline;
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

/// The key with which approvals are signed.
const KEY: &str = "0123456789abcdef0123456789abcdef";
/// The key with which looks are signed.
const LOOK: &str = "fedcba9876543210fedcba9876543210";
/// The address of clients.
const CLIENT: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Pipeline `shop`: `dev` runs `web`, `prod` runs `live` and waits for an approval. Notification `hook` reports the promotions.
struct Stage {
    world: World,
    receiver: Receiver,
}

/// An answer, without the header `date`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Stage {
    async fn new(ns: &str) -> Self {
        let stage = Self { world: World::new(ns).await, receiver: Receiver::start() };
        for app in ["web", "live"] {
            stage.world.deploy(app, "1").await;
        }
        stage.inbound("approvals", json!({"hmac-key": KEY})).await;
        stage.inbound("looks", json!({"hmac-key": LOOK})).await;
        stage.world.create::<Pipeline>(stage.pipeline("shop", Kind::Deployment, "approvals")).await;
        stage.notify().await;
        stage
    }

    /// Creates a Secret with keys of hooks.
    async fn inbound(&self, name: &str, data: Value) {
        let secret = json!({"metadata": {"name": name}, "type": "relaybook.dev/inbound", "stringData": data});
        self.world.create::<k8s_openapi::api::core::v1::Secret>(secret).await;
    }

    /// Returns a pipeline whose promotions to `prod` need an approval with a key of this Secret.
    fn pipeline(&self, name: &str, kind: Kind, approvals: &str) -> Value {
        let mut object = pipeline(&self.world.ns, name, kind, &["dev/web", "prod/live"]);
        object["spec"]["hooks"] = json!({"secretRef": {"name": "looks"}});
        object["spec"]["environments"][1]["promotion"] =
            json!({"manual": true, "strategy": {"notification": {}, "secretRef": {"name": approvals}}});
        object
    }

    /// Creates such a pipeline that promotes nothing, because it is suspended.
    async fn suspended(&self, name: &str, approvals: &str) {
        let mut object = self.pipeline(name, Kind::Deployment, approvals);
        object["spec"]["environments"][1]["promotion"]["suspend"] = json!(true);
        self.world.create::<Pipeline>(object).await;
    }

    async fn notify(&self) {
        let triggers = json!([
            {"type": "PromotionPending"}, {"type": "PromotionRequested"}, {"type": "PromotionFinished"},
            {"type": "Deployed", "environments": ["fence"]},
        ]);
        let over = json!({"triggers": triggers, "endpoint": {"url": self.receiver.url("/hook")}});
        self.world.notification("hook", &self.receiver, over).await;
    }

    fn options(&self) -> Options {
        Options { hooks: true, controllers: "pipeline,dispatch,promote", ..Options::of(&self.world) }
    }

    /// Starts Relaybook, and waits until everything is observed.
    async fn relaybook(&self) -> (Relaybook, SocketAddr) {
        let relaybook = Relaybook::with(&self.world, self.options()).await;
        self.world.settled().await;
        let hooks = relaybook.hooks().await;
        (relaybook, hooks)
    }

    /// Ships a revision to `dev`, and waits until its promotion to `prod` waits for an approval.
    async fn ship(&self, tag: &str) -> WaitingApproval {
        self.world.ship("web", tag).await;
        self.waits("shop", tag).await
    }

    /// Waits until the promotion of a revision to `prod` waits for an approval.
    async fn waits(&self, pipeline: &str, revision: &str) -> WaitingApproval {
        eventually(&format!("{pipeline} waits for an approval of {revision}"), async || {
            let status = self.world.get_pipeline(pipeline).await.status.unwrap_or_default();
            let prod = status.environments.iter().find(|e| e.name == "prod").cloned().unwrap_or_default();
            let waiting = prod.waiting_approval.clone().filter(|waiting| waiting.revision == revision);
            waiting.ok_or_else(|| format!("{prod:?} {:?}", status.conditions))
        })
        .await
    }

    async fn promotion(&self, name: &str) -> Promotion {
        self.world.api().get(name).await.expect("the promotion is there")
    }

    /// Waits until a promotion has this phase.
    async fn phase(&self, name: &str, phase: Phase) -> Promotion {
        eventually(&format!("promotion {name} is {}", phase.as_str()), async || {
            let promotion = self.promotion(name).await;
            let is_there = promotion.status.as_ref().and_then(|status| status.phase) == Some(phase);
            if is_there { Ok(promotion) } else { Err(format!("{:?}", promotion.status)) }
        })
        .await
    }

    /// Returns what a correct approval says.
    fn body(&self, waiting: &WaitingApproval) -> Value {
        json!({
            "namespace": self.world.ns, "pipeline": "shop", "environment": "prod", "revision": waiting.revision,
            "promotion": waiting.promotion, "promotionUid": waiting.promotion_uid, "at": Time::now().to_string(),
        })
    }

    /// Sends an approval of what waits, signed with this key.
    async fn approve(&self, hooks: SocketAddr, waiting: &WaitingApproval, key: &str) -> Answer {
        self.approve_with(hooks, &self.body(waiting), key).await
    }

    /// Sends an approval, again and again while there are too many.
    async fn approve_with(&self, hooks: SocketAddr, body: &Value, key: &str) -> Answer {
        let body = body.to_string();
        let signature = approval(key, body.as_bytes());
        eventually("approvals are not too frequent", async || {
            let answer = post(hooks, &self.path("approval"), &[("X-Signature", &signature)], body.as_bytes()).await;
            if answer.status == 429 { Err(format!("{answer:?}")) } else { Ok(answer) }
        })
        .await
    }

    /// Sends an approval that must be refused, until the answer says that this promotion waits instead. The hooks know what waits from their
    /// watch of pipelines, which can be later than a read of the same pipeline.
    async fn refused(&self, hooks: SocketAddr, body: &Value, waiting: &WaitingApproval) {
        eventually(&format!("the answer names {}", waiting.promotion), async || {
            let answer = self.approve_with(hooks, body, KEY).await;
            assert_eq!(answer.status, 409, "{answer:?}");
            let names = answer.body.contains(&waiting.promotion) && answer.body.contains(&waiting.promotion_uid);
            if names { Ok(()) } else { Err(answer.body) }
        })
        .await;
    }

    /// Returns the path of a hook of `shop`.
    fn path(&self, hook: &str) -> String {
        format!("/{hook}/{}/shop", self.world.ns)
    }

    /// Checks that the promotions of `shop` were reported exactly so, and no others.
    async fn told(&self, steps: &[&str]) {
        self.world.fence("shop", &["hook"]).await;
        Oracle::new(&self.world, &self.receiver).lane("shop/hook/prod/promotion", steps).check().await;
    }
}

/// Returns a signature in hexadecimal digits.
fn sign(key: &str, message: &[u8]) -> String {
    hex::encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), message))
}

/// Returns the value of `X-Signature` for an approval.
fn approval(key: &str, body: &[u8]) -> String {
    format!("sha256={}", sign(key, &[b"relaybook-approval-v1\n", body].concat()))
}

/// Returns a request as bytes.
fn request(path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: hooks\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.extend([*name, ": ", *value, "\r\n"]);
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// Connects from an address of this machine.
async fn connect(hooks: SocketAddr, from: Ipv4Addr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(hooks).await
}

/// Reads an answer until the connection ends. `None`: there is none.
async fn read(mut stream: TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    // A server that closes a connection before it has read everything resets it, possibly after the answer.
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let lines = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("date:"));
    Some(Answer { status, head: lines.collect::<Vec<_>>().join("\n"), body: body.to_owned() })
}

/// Sends bytes from an address of this machine, and reads the answer.
async fn exchange(hooks: SocketAddr, from: Ipv4Addr, bytes: &[u8]) -> Option<Answer> {
    let mut stream = connect(hooks, from).await.ok()?;
    let _ = stream.write_all(bytes).await;
    read(stream).await
}

/// Sends a request, and reads its answer.
async fn post(hooks: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    exchange(hooks, CLIENT, &request(path, headers, body)).await.expect("an answer")
}
