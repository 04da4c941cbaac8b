//! Tests the completion of real shells: names come from the cluster. A server that is away gives none, and nothing is printed.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Receiver, World, eventually};

struct Shell {
    name: &'static str,
    args: &'static [&'static str],
    /// Loads the completion as its user does, and prints what it offers after LINE and a space.
    script: &'static str,
}

/// How long a user waits for the candidates at most, also if the server never answers. The programs of the shell are in it.
const PATIENCE: Duration = Duration::from_secs(10);

const SHELLS: [Shell; 3] = [
    Shell {
        name: "bash",
        args: &["-c"],
        script: "source <(relaybook completion bash); COMP_WORDS=(LINE ''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_TYPE=9; \
                 _clap_complete_relaybook relaybook '' \"${COMP_WORDS[COMP_CWORD - 1]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"",
    },
    // Without a terminal, `_describe` cannot show anything. Its third argument names the list.
    Shell {
        name: "zsh",
        args: &["-f", "-c"],
        script: "autoload -U compinit; compinit -u -D; source <(relaybook completion zsh); \
                 _describe() { print -rl -- \"${(@P)3}\" }; words=(LINE ''); CURRENT=$#words; $_comps[relaybook]",
    },
    Shell {
        name: "fish",
        args: &["--no-config", "-c"],
        script: "relaybook completion fish | source; complete --do-complete 'LINE '",
    },
];

impl Shell {
    /// Whether this machine has it. `.ci/run` installs all of them.
    fn is_installed(&self) -> bool {
        Command::new(self.name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    }

    /// Returns what it offers for the word after this line, without descriptions, and what it prints on stderr.
    async fn offered(&self, kubeconfig: &Path, line: &str) -> (Vec<String>, String) {
        let program = Path::new(env!("CARGO_BIN_EXE_relaybook"));
        let path = format!("{}:{}", program.parent().expect("a folder").display(), std::env::var("PATH").expect("a path"));
        let mut command = Command::new(self.name);
        command.args(self.args).arg(self.script.replace("LINE", line)).stdin(Stdio::null());
        command.env("PATH", path).env("KUBECONFIG", kubeconfig).env("HOME", home());
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME").env_remove("RELAYBOOK_CONTEXT");
        let output = tokio::task::spawn_blocking(move || command.output().expect("the shell runs")).await.expect("joined");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let names = text(output.stdout).split(['\n', '\x0b']).map(name).collect();
        (names, text(output.stderr))
    }
}

/// Returns the name in a line that can have a description.
fn name(offer: &str) -> String {
    offer.split([':', '\t']).next().unwrap_or_default().trim().to_owned()
}

/// The home of a user without settings.
fn home() -> PathBuf {
    let folder = crate::support::tmp().join("completion-home");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Writes a kubeconfig for an API server at this address.
fn kubeconfig(name: &str, address: &str) -> PathBuf {
    let file = home().join(name);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": format!("https://{address}")}}],
        "users": [{"name": "a", "user": {"token": "none"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    std::fs::write(&file, config.to_string()).expect("a file");
    file
}

#[tokio::test]
async fn shells_complete_names_of_the_cluster() {
    let world = World::new("completion").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web", "prod/web"]).await;
    world.notification("chat", &receiver, json!({})).await;
    for shell in SHELLS.iter().filter(|shell| shell.is_installed()) {
        for (line, name) in [
            ("relaybook explain -n completion", "shop"),
            ("relaybook explain -n completion shop", "chat"),
            ("relaybook approve -n completion shop", "prod"),
            ("relaybook audit -n completion --notification", "chat"),
            ("relaybook status -n", "completion"),
            ("relaybook completion", "zsh"),
        ] {
            // An API server that is busy for half a second gives no candidates.
            eventually(&format!("{} offers {name} after {line}", shell.name), async || {
                let (names, err) = shell.offered(&world.kubeconfig, line).await;
                assert!(err.is_empty(), "{} {line}: {err}", shell.name);
                if names.iter().any(|offered| offered == name) { Ok(()) } else { Err(names.join(" ")) }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn shells_complete_only_options_and_print_nothing_if_the_server_is_away() {
    // It accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let away = [PathBuf::from("/nowhere"), kubeconfig("refused", "127.0.0.1:1"), kubeconfig("silent", &address)];
    for shell in SHELLS.iter().filter(|shell| shell.is_installed()) {
        for kubeconfig in &away {
            let began = Instant::now();
            let (names, err) = shell.offered(kubeconfig, "relaybook explain -n completion").await;
            let took = began.elapsed();
            let (shell, kubeconfig) = (shell.name, kubeconfig.display());
            let is_option = |name: &String| name.is_empty() || name.starts_with('-');
            assert!(err.is_empty() && names.iter().all(is_option), "{shell} {kubeconfig}: {names:?} {err}");
            assert!(names.iter().any(|name| name == "--namespace"), "{shell} {kubeconfig}: {names:?}");
            assert!(took < PATIENCE, "{shell} {kubeconfig}: {took:?}");
        }
    }
}
