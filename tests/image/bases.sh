# shellcheck shell=bash disable=SC2154
# Sourced by tests/image/run: the images that the Dockerfile starts from, made of Debian's packages and of this machine's Rust, under the
# very names that the Dockerfile has. They stand in for those of a registry, and have what those have:
#
#   rust:VERSION-slim-bookworm        Debian 12 with gcc and libc6-dev; rustup and the toolchain below /usr/local
#   gcr.io/distroless/…-debian12      files of Debian's packages, of which none is installed: no shell, no package manager, no list of
#                                     packages but their records in /var/lib/dpkg/status.d; user 65532
#
# All are made once, and again where this file or the toolchain has changed. Uses $work and buildah of tests/image/run.

RUST_BASE=rust:$(rustc --version | cut -d' ' -f2)-slim-bookworm
# what each adds to the one before (static and base-nossl, base and cc, in distroless' own build files)
NOSSL_BASE=gcr.io/distroless/base-nossl-debian12:nonroot
NOSSL_PACKAGES=(base-files ca-certificates netbase tzdata libc6)
CC_BASE=gcr.io/distroless/cc-debian12:nonroot
CC_PACKAGES=("${NOSSL_PACKAGES[@]}" libssl3 gcc-12-base libgcc-s1 libgomp1 libstdc++6)

mark_of() { printf '%s/bases/%s' "$work" "$(tr -c 'a-z0-9.\n' - <<<"$1")"; }
# made NAME MARK: whether the image is there, and was made from MARK
made() { [[ $(cat "$(mark_of "$1")" 2>/dev/null) == "$2" ]] && buildah inspect --type image "$1" >/dev/null 2>&1; }

# commit_base NAME MARK FOLDER [OPTION OF buildah config]...
commit_base() {
    local name=$1 mark=$2 folder=$3 container
    shift 3
    container=$(buildah from scratch) && buildah add --quiet "$container" "$folder" / >/dev/null && rm -rf "$folder" &&
        buildah config "$@" "$container" && buildah commit --quiet --rm --timestamp 0 "$container" "$name" >/dev/null || return
    printf '%s\n' "$mark" >"$(mark_of "$name")"
}

# debian: a folder with Debian 12 and a C compiler, and beside it the packages of distroless as files
debian() {
    local folder=$work/bases/debian
    rm -rf "$folder"
    debootstrap --variant=minbase --include=ca-certificates,gcc,libc6-dev bookworm "$folder" >"$work/debootstrap.log" 2>&1 || {
        tail -n 5 "$work/debootstrap.log" >&2
        return 1
    }
    mkdir "$folder/debs"
    # as apt-get fetches them, which checks them against Debian's keys
    chroot "$folder" sh -c "cd /debs && apt-get download -q ${CC_PACKAGES[*]}" >>"$work/debootstrap.log" 2>&1 || return
    rm -rf "$work/bases/debs"
    mv "$folder/debs" "$work/bases/debs"
}

# rust_base MARK
rust_base() {
    local folder=$work/bases/debian toolchain tool to cargo
    toolchain=$(realpath "$(rustc --print sysroot)")
    to=$folder/usr/local/rustup/toolchains/${toolchain##*/} cargo=$folder/usr/local/cargo/bin
    mkdir -p "$to" "$cargo"
    # without the documentation
    cp -a "$toolchain"/{bin,etc,lib,libexec} "$to/"
    printf 'version = "12"\nprofile = "minimal"\ndefault_toolchain = "%s"\n' "${toolchain##*/}" >"$folder/usr/local/rustup/settings.toml"
    cp -L "$(command -v rustup)" "$cargo/rustup"
    for tool in cargo rustc; do ln -s rustup "$cargo/$tool"; done
    rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
    commit_base "$RUST_BASE" "$1" "$folder" --env RUSTUP_HOME=/usr/local/rustup --env CARGO_HOME=/usr/local/cargo \
        --env PATH=/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
}

# distroless_base NAME MARK PACKAGE...
distroless_base() {
    local folder=$work/bases/distroless image=$1 mark=$2 name deb
    shift 2
    rm -rf "$folder"
    mkdir -p "$folder/var/lib/dpkg/status.d"
    # Debian 12 has merged /usr; its packages are older than that
    for name in bin sbin lib lib64; do
        mkdir -p "$folder/usr/$name" && ln -s "usr/$name" "$folder/$name"
    done
    for name; do
        deb=$(compgen -G "$work/bases/debs/${name}_*.deb")
        dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$folder"
        dpkg-deb --field "$deb" >"$folder/var/lib/dpkg/status.d/$name"
    done
    # of ca-certificates, what its installation would make; of all, nothing for people
    mkdir -p "$folder/etc/ssl/certs" "$folder/home/nonroot"
    cat "$folder"/usr/share/ca-certificates/mozilla/*.crt >"$folder/etc/ssl/certs/ca-certificates.crt"
    rm -rf "$folder"/usr/sbin/update-ca-certificates "$folder"/usr/share/{man,locale,lintian,bug}
    mkdir -p "$folder/tmp" && chmod 1777 "$folder/tmp"
    chmod 700 "$folder/home/nonroot" && chown 65532:65532 "$folder/home/nonroot"
    printf '%s\n' root:x:0:0:root:/root:/sbin/nologin nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin \
        nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin >"$folder/etc/passwd"
    printf '%s\n' root:x:0: nobody:x:65534: tty:x:5: staff:x:50: nonroot:x:65532: >"$folder/etc/group"
    echo 'hosts: files dns' >"$folder/etc/nsswitch.conf"
    commit_base "$image" "$mark" "$folder" --user 65532 --workingdir /home/nonroot --env SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
        --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
}

# bases: makes what is missing of them
bases() {
    local named mark
    named=$(sed -n 's/^FROM \([^ ]*[:/][^ ]*\).*/\1/p' Dockerfile | sort -u)
    if [[ $named != "$(printf '%s\n' "$CC_BASE" "$NOSSL_BASE" "$RUST_BASE" | sort)" ]]; then
        echo "tests/image/run: bases.sh has no recipe for all that the Dockerfile starts from: ${named//$'\n'/, }" >&2
        return 1
    fi
    mkdir -p "$work/bases"
    mark=$(rustc --version --verbose | cat - tests/image/bases.sh | sha256sum | cut -d' ' -f1)
    if made "$RUST_BASE" "$mark" && made "$NOSSL_BASE" "$mark" && made "$CC_BASE" "$mark"; then
        echo 'made before'
        return
    fi
    # and what was built from those before
    buildah rmi --all --force >/dev/null 2>&1 || true
    debian && rust_base "$mark" && distroless_base "$NOSSL_BASE" "$mark" "${NOSSL_PACKAGES[@]}" &&
        distroless_base "$CC_BASE" "$mark" "${CC_PACKAGES[@]}"
}
