# Two stages: build with the pinned toolchain, run on distroless (glibc and nothing else) as an unprivileged user.
#
#   docker build -t lapwing:0.1.0 .
#   docker build --build-arg PROFILE_GUIDED=no -t lapwing:0.1.0 .     # in less than half the time; a quarter to two fifths more processor time a request
#   docker run --rm --network host lapwing:0.1.0 --upstream http://127.0.0.1:8000
#
# The version is that of rust-toolchain.toml, which is left out of the context on purpose: its components (rustfmt, clippy)
# would be fetched for nothing. The image has the C compiler that jemalloc needs, but not the make that jemalloc needs.
FROM rust:1.95.0-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# what .dockerignore lets through: the manifest, the lock file, the settings of cargo, build.rs, src, crates and benches, and what trains
COPY . .
# for `yes`, benches/profile_guided.py builds it twice, and trains it in between with the traffic of its benchmarks, on two cores
ARG PROFILE_GUIDED=yes
RUN if [ "$PROFILE_GUIDED" = yes ]; then \
        apt-get update && apt-get install -y --no-install-recommends python3 wrk nginx-light nghttp2-client nghttp2-server && \
        rm -rf /var/lib/apt/lists/* && rustup component add llvm-tools; \
    fi
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    if [ "$PROFILE_GUIDED" = yes ]; then python3 benches/profile_guided.py --out /lapwing; \
    else cargo build --profile dist --locked && cp target/dist/lapwing /lapwing; fi

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /lapwing /usr/local/bin/lapwing
# Lapwing needs no privilege, no home and no writable file system
USER 65532:65532
# 8080: the data plane; 9464: stats, metrics, health. The upstream's spans come on loopback (4317, 4318). There is no
# HEALTHCHECK, since there is no shell: ask /livez and /readyz on the admin port.
EXPOSE 8080 9464
ENTRYPOINT ["lapwing"]
