# Pennant in an empty image: the static program, the certificate authorities, two settings. No shell, no package manager.
#
#   make image
#
# RUST is the image that has the compiler; name it with its digest, or the one of your mirror, and you know what builds. It
# takes Rust of this version, gcc, the C library's archives and ca-certificates, as the official one has them.
ARG RUST=rust:1.95.0-slim-bookworm

FROM ${RUST} AS build
ARG SOURCE_DATE_EPOCH=0
WORKDIR /src
COPY . .
RUN bash hack/image.sh root /image

FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
ARG SOURCE=
LABEL org.opencontainers.image.title="Pennant" \
      org.opencontainers.image.description="Tells the outside world what deployment pipelines do: recorded, ordered webhooks from Kubernetes." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
COPY --from=build /image/ /
# Authorities to trust: those that came with the image, and whatever is mounted at the folder.
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt SSL_CERT_DIR=/etc/pennant/ca
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/pennant"]
CMD ["run"]
