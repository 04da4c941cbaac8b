use proptest::prelude::*;

use super::*;

/// Returns a valid kubeconfig with one line for the cluster and one for the user.
fn file(cluster: &str, user: &str) -> String {
    let server = if cluster.contains("server:") { "" } else { "    server: https://10.0.0.1:6443\n" };
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: main\ncontexts:\n- name: main\n  context:\n    cluster: c\n    user: u\n\
         clusters:\n- name: c\n  cluster:\n{server}    {cluster}\nusers:\n- name: u\n  user:\n    {user}\n"
    )
}

fn refused(text: &str, insecure: bool) -> String {
    match read(text.as_bytes(), insecure) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

fn base64(text: &str) -> String {
    serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap().as_str().unwrap().to_owned()
}

fn identity() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["c".to_owned()]).unwrap();
    (base64(&made.cert.pem()), base64(&made.signing_key.serialize_pem()))
}

#[test]
fn a_kubeconfig_with_embedded_credentials_is_accepted() {
    let (certificate, key) = identity();
    let user = format!(
        "client-certificate-data: {certificate}\n    client-key-data: {key}\n    as: deployer\n    as-groups: [a, b]"
    );
    let cluster = format!("certificate-authority-data: {certificate}\n    tls-server-name: kubernetes");
    let read = read(file(&cluster, &user).as_bytes(), false).unwrap();
    assert_eq!(read.server.to_string(), "https://10.0.0.1:6443/");
    assert_eq!((read.roots.unwrap().len(), read.server_name.as_deref()), (1, Some("kubernetes")));
    assert!(read.user.certificate.is_some() && read.user.token.is_none() && !read.any_certificate);
    assert_eq!((read.user.act_as.as_deref(), read.user.act_as_groups.len()), (Some("deployer"), 2));
}

#[test]
fn users_with_a_token_or_a_password_or_no_credentials_are_read() {
    let user = |text: &str| read(file("", text).as_bytes(), false).unwrap().user;
    assert_eq!(user("token: abc").token.unwrap().expose_secret(), "abc");
    let (name, password) = user("username: me\n    password: sesame").basic.unwrap();
    assert_eq!((name.as_str(), password.expose_secret()), ("me", "sesame"));
    assert!(user("username: me\n    password: sesame\n    token: abc").basic.is_none(), "a token goes before");
    assert!(user("{}").token.is_none(), "nobody in particular");
    // JSON is YAML.
    let json = r#"{"contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}], "clusters": [{"name": "c", "cluster":
        {"server": "https://api.example.com"}}], "users": [{"name": "u", "user": {"token": "abc"}}]}"#;
    assert!(read(json.as_bytes(), false).unwrap().user.token.is_some(), "one context needs not be named");
}

#[test]
fn dangerous_or_unsupported_settings_are_refused_with_field_and_remedy() {
    let (certificate, key) = identity();
    for (cluster, user, words) in [
        ("", "exec: {command: sh}", "users[].user.exec runs a program"),
        ("", "auth-provider: {name: gcp}", "users[].user.auth-provider runs a program"),
        ("", "tokenFile: /var/run/token", "users[].user.tokenFile refers to a file"),
        ("", "client-certificate: /a", "put the content into client-certificate-data"),
        ("", "client-key: /a", "users[].user.client-key refers to a file"),
        ("", "as-uid: '7'", "as-uid is not supported; use as and as-groups"),
        ("", "as-user-extra: {a: [b]}", "as-user-extra is not supported"),
        ("certificate-authority: /etc/ca.pem", "{}", "put the content into certificate-authority-data"),
        ("insecure-skip-tls-verify: true", "{}", "--allow-insecure-clusters"),
        ("server: http://10.0.0.1", "{}", "--allow-insecure-clusters"),
        ("proxy-url: http://proxy:3128", "{}", "proxy-url is not supported"),
        ("server: ftp://10.0.0.1", "{}", "must begin with https://"),
        ("server: ''", "{}", "server is missing"),
        ("server: nonsense", "{}", "is not a URL"),
        ("server: https://me:sesame@10.0.0.1", "{}", "must not contain a user or a password"),
        ("server: https://10.0.0.1/?token=sesame", "{}", "must not have a query"),
        ("server: https://169.254.169.254", "{}", "metadata"),
        ("server: https://0xa9fea9fe", "{}", "metadata"),
        ("server: https://[::ffff:169.254.169.254]", "{}", "metadata"),
        ("server: https://[fe80::1]", "{}", "metadata"),
        ("server: https://[fd00:ec2::254]", "{}", "metadata"),
        ("server: https://[64:ff9b::a9fe:a9fe]", "{}", "metadata"),
        ("server: https://[2002:a9fe:a9fe::]", "{}", "metadata"),
        ("server: https://100.100.100.200", "{}", "metadata"),
        ("server: https://168.63.129.16", "{}", "metadata"),
        ("server: https://metadata.google.internal", "{}", "metadata"),
        ("server: https://0.0.0.0", "{}", "metadata"),
        ("server: https://[::]", "{}", "metadata"),
        ("tls-server-name: 'no name'", "{}", "tls-server-name is not"),
        ("certificate-authority-data: sesame", "{}", "certificate-authority-data is not"),
        ("certificate-authority-data: aGVsbG8K", "{}", "certificate-authority-data is not"),
        ("", &format!("client-certificate-data: {certificate}"), "client-key-data is missing"),
        ("", &format!("client-key-data: {key}"), "client-certificate-data is missing"),
        ("", &format!("client-key-data: sesame\n    client-certificate-data: {certificate}"), "client-key-data is not"),
        ("", "token: \"sesame\\n\"", "token has characters"),
        ("", "as: \"a\\u0000\"", "users[].user.as has characters"),
        ("", "as-groups: [\"a\\n\"]", "as-groups has characters"),
    ] {
        let said = refused(&file(cluster, user), false);
        assert!(said.contains(words), "{cluster} {user}: {said:?}");
        assert!(!said.contains("sesame"), "{said}");
    }
    for allowed in
        ["server: http://10.0.0.1", "insecure-skip-tls-verify: true", "server: https://127.0.0.1", "server: https://[::1]"]
    {
        assert_eq!(refused(&file(allowed, "{}"), true), "", "{allowed}");
    }
    for always in ["server: http://169.254.169.254", "server: http://me:sesame@10.0.0.1"] {
        assert_ne!(refused(&file(always, "{}"), true), "", "{always}");
    }
}

#[test]
fn an_invalid_kubeconfig_is_refused_with_the_reason() {
    let two = "contexts: [{name: a, context: {cluster: c}}, {name: b, context: {cluster: c}}]";
    for (text, words) in [
        ("", "contexts"),
        ("{}", "contexts are missing"),
        ("just words", "cannot be read"),
        ("contexts: [", "at line"),
        ("contexts: sesame", "cannot be read"),
        (two, "current-context is missing"),
        ("current-context: x\ncontexts: [{name: a, context: {cluster: c}}]", "current-context refers to a context"),
        ("contexts: [{name: a}]", "contexts[].context is missing"),
        ("contexts: [{name: a, context: {cluster: c}}]", "context.cluster refers to"),
        ("contexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {}}]", "context.user refers to"),
        ("a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]", "cannot be read"),
        ("--- {}\n--- {}", "cannot be read"),
    ] {
        let said = refused(text, false);
        assert!(said.contains(words), "{text}: {said:?}");
        assert!(!said.contains("sesame"), "{said}");
    }
    assert!(refused(&" ".repeat(MAX_BYTES + 1), false).contains("larger than 64 KiB"));
    assert!(read(&[0xff, 0xfe], false).is_err());
}

#[test]
fn the_debug_format_shows_no_credentials() {
    let (certificate, key) = identity();
    let user = format!(
        "token: sesame\n    password: sesame\n    client-certificate-data: {certificate}\n    client-key-data: {key}"
    );
    let shown = format!("{:?}", read(file("", &user).as_bytes(), false).unwrap());
    assert!(!shown.contains("sesame") && !shown.contains(&key), "{shown}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let _ = read(&bytes, true);
    }

    /// Almost valid kubeconfigs: one piece is replaced. The error must contain no value of the file.
    #[test]
    fn errors_about_a_broken_kubeconfig_contain_no_values(at in 0usize..300, cut in 0usize..40, piece in "[\\PC\\n]{0,40}") {
        let mut text = file("certificate-authority-data: aGVsbG8K", "token: sesame");
        let from = at.min(text.len());
        let to = (from + cut).min(text.len());
        text.replace_range(from..to, &piece);
        if let Err(error) = read(text.as_bytes(), false) {
            prop_assert!(!error.to_string().contains("sesame") && !error.to_string().contains("aGVs"));
        }
    }
}
