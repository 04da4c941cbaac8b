pub fn provider() {
    _ = rustls::crypto::ring::default_provider().install_default();
}
