//! Revisions in labels and images, and the configuration in the images of init containers.

use serde_json::Value;

use super::view::View;

/// The label that names the revision of kinds without a rule of their own
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/>).
pub(super) fn of_label<'a>(view: &View<'a>) -> &'a str {
    view.label("app.kubernetes.io/version")
}

/// Number of hexadecimal digits of a digest in a configuration, as in container tools.
const DIGITS: usize = 12;

/// Tags or digests of the images in a pod template, in container order, joined by `,`.
pub(super) fn of_images(view: &View<'_>) -> String {
    images(view, "/spec/template/spec/containers").map(of_image).collect::<Vec<_>>().join(",")
}

/// Tags or short digests of the images of init containers in a pod template, in container order. Native sidecars are among them. They are no
/// part of the revision: an application is promoted, and a sidecar only accompanies it. Empty if there are none.
pub(super) fn of_init_images(view: &View<'_>) -> String {
    let images = images(view, "/spec/template/spec/initContainers").map(|image| short_digest(of_image(image)));
    let images = images.collect::<Vec<_>>().join(",");
    if images.is_empty() { images } else { format!("init images {images}") }
}

fn images<'a>(view: &View<'a>, pointer: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    view.list(pointer).iter().filter_map(|container| container.get("image").and_then(Value::as_str))
}

/// A digest with its first digits. Another text stays as it is.
pub(super) fn short_digest(text: &str) -> String {
    match text.split_once(':') {
        Some((algorithm, digits)) => format!("{algorithm}:{}", digits.chars().take(DIGITS).collect::<String>()),
        None => text.to_owned(),
    }
}

/// The digest of an image if it has one, because a tag beside it does not decide what runs. Otherwise its tag, which is `latest` if it is
/// omitted (<https://kubernetes.io/docs/concepts/containers/images/#image-names>).
pub(super) fn of_image(image: &str) -> &str {
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
    fn the_revision_of_an_image_is_its_digest_or_its_tag() {
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
