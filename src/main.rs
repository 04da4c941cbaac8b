fn main() {
    for crd in pennant::api::crds() {
        println!("---\n{}", serde_json::to_string(&crd).unwrap());
    }
}
