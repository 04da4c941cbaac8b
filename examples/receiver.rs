//! A webhook receiver to look at: it prints each request as it comes, numbered, with what matters for a notification.
//!
//! ```sh
//! cargo run --example receiver -- --port 8081
//! cargo run --example receiver -- --port 8082 --fail-first 2
//! ```
#![allow(clippy::print_stdout, reason = "printing is all that it does")]

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use clap::Parser;
use serde_json::Value;

/// Prints each request that it gets on loopback, and answers 200.
#[derive(Parser)]
struct Options {
    /// Port on 127.0.0.1; 0 takes a free one and says which.
    #[arg(long, env = "PORT", default_value_t = 0)]
    port: u16,
    /// Answer the first N requests with 503, to see them come again.
    #[arg(long, default_value_t = 0, value_name = "N")]
    fail_first: u64,
    /// Also append one line a request to this file: number, Unix milliseconds, answer, webhook-id, path, body, and what people read
    /// in the body's field `text`; tabs between.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// What it has seen so far.
struct Seen {
    requests: u64,
    fail_first: u64,
    /// The number of the first request with this webhook-id.
    ids: HashMap<String, u64>,
    record: Option<File>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let record = options.record.as_ref().map(|path| File::options().create(true).append(true).open(path)).transpose()?;
    let seen = Seen { requests: 0, fail_first: options.fail_first, ids: HashMap::new(), record };
    let listener = tokio::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, options.port))).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = Router::new().fallback(receive).with_state(Arc::new(Mutex::new(seen)));
    axum::serve(listener, app).await?;
    Ok(())
}

async fn receive(
    State(seen): State<Arc<Mutex<Seen>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    // Under the lock until it is printed: numbers, lines and answers are in one order.
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let now = jiff::Timestamp::now();
    let status = seen.take();
    let number = seen.requests;
    let text = String::from_utf8_lossy(&body);
    let json = serde_json::from_str::<Value>(&text).ok();
    let id = header(&headers, "webhook-id").map(str::to_owned);

    let repeats = id.as_ref().and_then(|id| {
        let first = *seen.ids.entry(id.clone()).or_insert(number);
        (first != number).then_some(first)
    });
    let shown = Shown { number, now, method: &method, uri: &uri, headers: &headers, status, repeats };
    let compact = json.as_ref().map_or_else(|| text.replace(['\t', '\n', '\r'], " "), Value::to_string);
    let read = json.as_ref().and_then(|json| json.get("text")).and_then(Value::as_str).unwrap_or_default();
    let read = read.replace(char::is_control, " ");
    let pretty = json.and_then(|json| serde_json::to_string_pretty(&json).ok()).unwrap_or_else(|| text.into_owned());
    let line = format!(
        "{number}\t{}\t{}\t{}\t{}\t{compact}\t{read}\n",
        now.as_millisecond(),
        status.as_u16(),
        id.as_deref().unwrap_or("-"),
        uri.path()
    );
    // A full disk or a closed terminal is no reason to answer the sender anything else.
    let _ = shown.print(&pretty);
    if let Some(file) = &mut seen.record {
        let _ = file.write_all(line.as_bytes());
    }
    (status, if status.is_success() { "thank you\n" } else { "not now\n" })
}

impl Seen {
    /// Counts a request and says how to answer it.
    fn take(&mut self) -> StatusCode {
        self.requests += 1;
        if self.requests <= self.fail_first { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
    }
}

/// One request, as people read it.
struct Shown<'a> {
    number: u64,
    now: jiff::Timestamp,
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    status: StatusCode,
    repeats: Option<u64>,
}

impl Shown<'_> {
    fn print(&self, body: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let time = self.now.strftime("%H:%M:%S%.3fZ");
        let repeats = self.repeats.map(|first| format!("  again, the same id as #{first}")).unwrap_or_default();
        writeln!(out, "\n#{}  {time}  {} {}  -> {}{repeats}", self.number, self.method, self.uri, self.status.as_u16())?;
        for name in ["content-type", "user-agent", "webhook-id", "webhook-timestamp"] {
            if let Some(value) = header(self.headers, name) {
                writeln!(out, "    {name}: {value}")?;
            }
        }
        if let Some(value) = self.headers.get("authorization") {
            writeln!(out, "    authorization: {}", masked(value))?;
        }
        for line in body.trim_end().lines() {
            writeln!(out, "    | {line}")?;
        }
        out.flush()
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The scheme is worth seeing, the secret is not.
fn masked(value: &HeaderValue) -> String {
    match value.to_str().ok().and_then(|value| value.split_once(' ')) {
        Some((scheme, _)) => format!("{scheme} ****"),
        None => "****".to_owned(),
    }
}
