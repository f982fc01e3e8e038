#!/usr/bin/env bash
# Builds an OpenTelemetry Collector with what the tests need: the OTLP receiver, the batch processor, the OTLP/HTTP exporter.
# It takes minutes once; the binary is kept.
set -euo pipefail

version=v0.160.0 stable=v1.66.0
if [[ ${1:-} == --help || $# != 1 ]]; then
    echo "usage: tests/real/otelcol.sh FOLDER    builds FOLDER/bin/otelcol by Go and ocb $version, unless it is there"
    [[ ${1:-} == --help ]] && exit 0
    exit 64
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
[[ -x $folder/bin/otelcol ]] && exit 0
echo "-- building an OpenTelemetry Collector"
export GOPATH=$folder GOFLAGS=-modcacherw
go install "go.opentelemetry.io/collector/cmd/builder@$version"
build=$folder/otelcol
mkdir -p "$build"
cat >"$build/manifest.yaml" <<MANIFEST
dist: {name: otelcol, output_path: $build/dist}
receivers: [{gomod: go.opentelemetry.io/collector/receiver/otlpreceiver $version}]
processors: [{gomod: go.opentelemetry.io/collector/processor/batchprocessor $version}]
exporters: [{gomod: go.opentelemetry.io/collector/exporter/otlphttpexporter $version}]
providers:
  - gomod: go.opentelemetry.io/collector/confmap/provider/envprovider $stable
  - gomod: go.opentelemetry.io/collector/confmap/provider/fileprovider $stable
MANIFEST
"$folder/bin/builder" --config "$build/manifest.yaml"
mv "$build/dist/otelcol" "$folder/bin/otelcol"
