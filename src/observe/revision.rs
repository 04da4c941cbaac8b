//! Revisions in labels and images.

use serde_json::Value;

use super::view::View;

/// The label that names the revision of kinds without a rule of their own
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/>).
pub(super) fn of_label<'a>(view: &View<'a>) -> &'a str {
    view.label("app.kubernetes.io/version")
}

/// Tags or digests of the images in a pod template, in container order, joined by `,`.
pub(super) fn of_images(view: &View<'_>) -> String {
    let containers = view.list("/spec/template/spec/containers").iter();
    let images = containers.filter_map(|c| c.get("image").and_then(Value::as_str));
    images.map(of_image).collect::<Vec<_>>().join(",")
}

/// The digest of an image if it has one, because a tag beside it does not decide what runs. Otherwise its tag, which is `latest` if it is
/// omitted (<https://kubernetes.io/docs/concepts/containers/images/#image-names>).
fn of_image(image: &str) -> &str {
    if let Some((_, digest)) = image.split_once('@') {
        return digest;
    }
    // Before the last slash, a colon belongs to the registry's port.
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').map_or("latest", |(_, tag)| tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_its_digest_or_its_tag() {
        for (image, want) in [
            ("web:1.2", "1.2"),
            ("ghcr.io/acme/web:1.2", "1.2"),
            ("localhost:5000/web:1.2", "1.2"),
            ("localhost:5000/web", "latest"),
            ("web", "latest"),
            ("web@sha256:abc", "sha256:abc"),
            ("localhost:5000/web:1.2@sha256:abc", "sha256:abc"),
            ("", "latest"),
        ] {
            assert_eq!(of_image(image), want, "{image}");
        }
    }
}
