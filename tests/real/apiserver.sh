#!/usr/bin/env bash
# Builds the API server of Kubernetes and etcd, which are all that a chart and a webhook need of a cluster: nothing runs the pods.
# It takes minutes once; the binaries are kept.
set -euo pipefail

kubernetes=1.37.2 etcd=v3.7.3
if [[ ${1:-} == --help || $# != 1 ]]; then
    echo "usage: tests/real/apiserver.sh FOLDER    builds FOLDER/bin/kube-apiserver $kubernetes and FOLDER/bin/etcd $etcd, unless they are there"
    [[ ${1:-} == --help ]] && exit 0
    exit 64
fi
mkdir -p "$1/bin"
folder=$(cd "$1" && pwd)
export GOPATH=$folder GOFLAGS=-modcacherw
[[ $(cat "$folder/apiserver.version" 2>/dev/null) == "$kubernetes $etcd" ]] && exit 0

# a module of its own, empty
module() {
    rm -rf "${folder:?}/$1" && mkdir "$folder/$1" && cd "$folder/$1" && go mod init "$1"
}

echo "-- building the API server of Kubernetes $kubernetes"
module kube-apiserver
go mod edit -require "k8s.io/kubernetes@v$kubernetes"
source=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
# its go.mod points to folders beside it, which are published apart, as v0 for v1
for part in $(sed -n 's,^\t\(k8s.io/[a-z-]*\) => ./staging/.*,\1,p' "$source/go.mod"); do
    go mod edit -replace "$part=$part@v0${kubernetes#1}"
done
go get "k8s.io/kubernetes/cmd/kube-apiserver@v$kubernetes"
IFS=. read -r major minor _ <<<"$kubernetes"
named="-X k8s.io/component-base/version.gitVersion=v$kubernetes"
named+=" -X k8s.io/component-base/version.gitMajor=$major -X k8s.io/component-base/version.gitMinor=$minor"
go build -ldflags="-s -w $named" -o "$folder/bin/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver

echo "-- building etcd $etcd"
module etcd
go get "go.etcd.io/etcd/server/v3@$etcd"
go build -ldflags='-s -w' -o "$folder/bin/etcd" go.etcd.io/etcd/server/v3
echo "$kubernetes $etcd" >"$folder/apiserver.version"
