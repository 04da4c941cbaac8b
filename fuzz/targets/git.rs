//! Fuzzes the answers of a Git server. Whatever it sends, the result must be an error, or a snapshot whose commit has another id than the one
//! below it, and whose edit pushes a pack.
//!
//! In: the bodies of answers, separated by the bytes FF 00 FF, in the order of the requests: capabilities, refs, commit with trees, files,
//! history, refs before a push, report of the push. A body that begins with FE is a pack, which is put into packet lines here, so that a
//! mutation breaks them less often. Out: nothing, or a panic.
#![no_main]

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use libfuzzer_sys::fuzz_target;
use relaybook_git::{
    Author, GitError, Message, Paths, Push, Remote, Request, Response, Transport, TransportError, commit, push,
};

const BRANCH: &str = "refs/heads/main";
const SEPARATOR: [u8; 3] = [0xff, 0x00, 0xff];
/// The first byte of a pack without packet lines.
const PACK: u8 = 0xfe;
/// Maximum number of bytes of a packet line of a pack.
const LINE: usize = 60_000;

fuzz_target!(|bytes: &[u8]| {
    let server = Server(Mutex::new(split(bytes)));
    let mut talk = pin!(talk(&server));
    // No answer has to be waited for.
    let Poll::Ready(_) = talk.as_mut().poll(&mut Context::from_waker(Waker::noop())) else { unreachable!("nothing waits") };
});

/// Reads a repository, edits each file, and pushes the commit.
async fn talk(server: &Server) -> Result<(), GitError> {
    let remote = Remote::connect(server).await?;
    let base = remote.refs(&[BRANCH]).await?.id(BRANCH)?;
    let snapshot = remote.snapshot(base, &Paths::default()).await?;
    assert_eq!(snapshot.commit.id, base, "the commit has the id that was asked for");
    drop(remote.history(base, 10).await);
    let edits: BTreeMap<_, _> =
        snapshot.files.iter().map(|(path, file)| (path.clone(), [&file.bytes[..], b"#"].concat().into())).collect();
    let message = Message::new("a").and_then(|message| message.trailer("Relaybook-Promotion", "b")).expect("a message");
    let author = Author::new("a", "a@example.com").expect("an author");
    let Ok(Some(made)) = commit(&snapshot, &edits, &message, &author, 0) else { return Ok(()) };
    assert_ne!(made.id, base);
    push(server, BRANCH, Push::Update { old: base, new: made.id, pack: made.pack }).await?;
    Ok(())
}

fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut bodies, mut rest) = (Vec::new(), bytes);
    while let Some(at) = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR) {
        bodies.push(rest[..at].to_vec());
        rest = &rest[at + SEPARATOR.len()..];
    }
    bodies.push(rest.to_vec());
    bodies.reverse();
    bodies
}

/// The answers that are left, last first.
struct Server(Mutex<Vec<Vec<u8>>>);

impl Transport for Server {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let body = self.0.lock().expect("no panic").pop().unwrap_or_default();
        let body = match body.split_first() {
            Some((&PACK, pack)) => packed(pack),
            _ => body,
        };
        let content_type = request.headers.iter().find(|(name, _)| *name == "accept").map(|(_, value)| (*value).to_owned());
        if body.len() > request.limit {
            return Err(TransportError::TooLong);
        }
        Ok(Response { status: 200, content_type, redirect: None, body: body.into() })
    }
}

/// Returns the answer to a fetch with this pack.
fn packed(pack: &[u8]) -> Vec<u8> {
    let mut answer = b"000dpackfile\n".to_vec();
    for part in pack.chunks(LINE) {
        answer.extend_from_slice(format!("{:04x}\u{1}", part.len() + 5).as_bytes());
        answer.extend_from_slice(part);
    }
    answer.extend_from_slice(b"0000");
    answer
}
