# Build with the pinned toolchain, run on distroless (glibc, certificates, time zones, and no shell) as an unprivileged user. docs/IMAGE.md
# has what is in it, and how to check that.
#
#   docker build -t lapwing:0.1.0 .
#   docker build --build-arg PROFILE_GUIDED=no -t lapwing:0.1.0 .     # in less than half the time; a quarter to two fifths more processor time a request
#   docker build --target onnxruntime -t lapwing:0.1.0-onnxruntime .  # with ONNX Runtime's library, for models that it is to run
#   docker run --rm --network host lapwing:0.1.0 --upstream http://127.0.0.1:8000
#
# The version is that of rust-toolchain.toml, which is left out of the context on purpose: its components (rustfmt, clippy)
# would be fetched for nothing. The image has the C compiler that jemalloc needs, but not the make that jemalloc needs.
FROM rust:1.95.0-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# what .dockerignore lets through: the manifest, the lock file, the settings of cargo, build.rs, src, crates and benches, and what trains
COPY . .
# for `yes`, benches/profile_guided.py builds it twice, and trains it in between with the traffic of its benchmarks, on two cores
ARG PROFILE_GUIDED=yes
# hadolint ignore=DL3008
RUN if [ "$PROFILE_GUIDED" = yes ]; then \
        apt-get update && apt-get install -y --no-install-recommends python3 wrk nginx-light nghttp2-client nghttp2-server && \
        rm -rf /var/lib/apt/lists/* && rustup component add llvm-tools; \
    fi
# cargo goes by times: what the last build left must not pass for that of other sources which are older than it
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    find . -path ./target -prune -o -type f -exec sha256sum {} + >/sources && \
    { cmp -s /sources target/sources || find . -path ./target -prune -o -type f -exec touch {} +; } && \
    if [ "$PROFILE_GUIDED" = yes ]; then python3 benches/profile_guided.py --out /lapwing; \
    else cargo build --profile dist --locked && cp target/dist/lapwing /lapwing; fi && \
    cp /sources target/sources

# ONNX Runtime's library from its Python package, of the version that the tests have; a hash for each architecture
FROM rust:1.95.0-slim-bookworm AS library
WORKDIR /library
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip && rm -rf /var/lib/apt/lists/*
RUN echo 'onnxruntime==1.31.1' \
        '--hash=sha256:5752bd508126ae7c49894d3b9d2e83f0c3d487319246d04c444b393308d7ad7f' \
        '--hash=sha256:da05378364c44d4407e463982d2bf8d5e4cfea873283757e48beeb41df97b7f3' >wanted && \
    pip download --no-cache-dir --no-deps --only-binary :all: --require-hashes -r wanted && \
    python3 -m zipfile -e ./*.whl . && mv onnxruntime/capi/libonnxruntime.so.* libonnxruntime.so.1

FROM gcr.io/distroless/cc-debian12:nonroot AS onnxruntime
COPY --from=library /library/libonnxruntime.so.1 /usr/local/lib/
COPY --from=library /library/onnxruntime/LICENSE /library/onnxruntime/ThirdPartyNotices.txt /usr/share/doc/onnxruntime/
COPY --from=build /lapwing /usr/local/bin/lapwing
ENV ORT_DYLIB_PATH=/usr/local/lib/libonnxruntime.so.1
USER 65532:65532
EXPOSE 8080 9464
ENTRYPOINT ["lapwing"]

# what a Rust program needs beside the C library: libgcc, without C++ and OpenSSL
FROM gcr.io/distroless/cc-debian12:nonroot AS cc

FROM gcr.io/distroless/base-nossl-debian12:nonroot AS lapwing
# the loader looks in /usr/lib on every architecture; the package's record is for scanners
COPY --from=cc /lib/*-linux-gnu/libgcc_s.so.1 /usr/lib/
COPY --from=cc /var/lib/dpkg/status.d/libgcc-s1 /var/lib/dpkg/status.d/
COPY --from=build /lapwing /usr/local/bin/lapwing
# Lapwing needs no privilege, no home and no writable file system
USER 65532:65532
# 8080: the data plane; 9464: stats, metrics, health. The upstream's spans come on loopback (4317, 4318). There is no
# HEALTHCHECK, since there is no shell: ask /livez and /readyz on the admin port.
EXPOSE 8080 9464
ENTRYPOINT ["lapwing"]
