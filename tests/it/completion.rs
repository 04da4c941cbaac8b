//! Tests the completion of a real bash: names come from the cluster, and a server that is away gives none.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{Receiver, World, eventually};

/// Returns what bash offers for the last of these words.
async fn offered(kubeconfig: &std::path::Path, line: &'static str) -> (String, String) {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_relaybook"));
    let path = format!("{}:{}", program.parent().expect("a folder").display(), std::env::var("PATH").expect("a path"));
    let script = format!(
        "source <(relaybook completion bash); COMP_WORDS=({line} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_TYPE=9; \
        _clap_complete_relaybook relaybook '' \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]).env("PATH", path).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().expect("bash runs")).await.expect("joined");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn bash_completes_names_of_the_cluster() {
    let world = World::new("completion").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web", "prod/web"]).await;
    world.notification("chat", &receiver, json!({})).await;
    for (line, name) in [
        ("relaybook explain -n completion", "shop"),
        ("relaybook explain -n completion shop", "chat"),
        ("relaybook approve -n completion shop", "prod"),
        ("relaybook audit -n completion --notification", "chat"),
        ("relaybook status -n", "completion"),
        ("relaybook completion", "zsh"),
    ] {
        // An API server that is busy for half a second gives no candidates.
        eventually(&format!("bash offers {name} after {line}"), async || {
            let (out, err) = offered(&world.kubeconfig, line).await;
            assert!(err.is_empty(), "{line}: {err}");
            if out.lines().any(|offer| offer.trim() == name) { Ok(()) } else { Err(out) }
        })
        .await;
    }
    let (out, err) = offered(std::path::Path::new("/nowhere"), "relaybook explain -n completion").await;
    assert!(!out.contains("shop") && err.is_empty(), "{out} {err}");
}
