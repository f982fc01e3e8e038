# Two stages: build with the pinned toolchain, run on Debian slim as an unprivileged user.
#
#   docker build -t lapwing .
#   docker run --network host lapwing --upstream http://127.0.0.1:8000
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
# mimalloc is C
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY Cargo.toml Cargo.lock ./
COPY src ./src
COPY benches ./benches
RUN cargo build --release --locked && cp target/release/lapwing /lapwing

FROM debian:bookworm-slim
COPY --from=build /lapwing /usr/local/bin/lapwing
# nobody: Lapwing needs no privilege, no home and no writable file system
USER 65534:65534
# 8080: the data plane; 9464: stats, metrics, health; 4317 and 4318: the upstream's OTLP (loopback)
EXPOSE 8080 9464
ENTRYPOINT ["/usr/local/bin/lapwing"]
