# An image with only the static program, CA certificates and nsswitch.conf. It has no shell and no package manager.
#
#   make image
#
# RUST is the image with the compiler. To pin it, name it by digest, or name the image of your mirror. It must contain
# this version of Rust, gcc, the static archives of the C library and ca-certificates, as the official image does.
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
LABEL org.opencontainers.image.title="Relaybook" \
      org.opencontainers.image.description="Tells the outside world what deployment pipelines do: recorded, ordered webhooks from Kubernetes." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
COPY --from=build /image/ /
# Trusted CA certificates: those of the image, and all that are mounted at the folder. The allocator uses no huge pages, because they
# need a third more memory at rest, and save no processor time.
ENV MIMALLOC_ALLOW_THP=0 SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt SSL_CERT_DIR=/etc/relaybook/ca
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/relaybook"]
CMD ["run"]
