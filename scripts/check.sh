#!/usr/bin/env bash
# Formatting, vet, staticcheck, import rules, and generated files against their sources.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tools.env
files=$(git ls-files '*.go')
# shellcheck disable=SC2086
bad=$(gofmt -l $files)
[ -z "$bad" ] || { echo "not formatted (run gofmt -w): $bad" >&2; exit 1; }
go vet ./...
go run "$STATICCHECK" ./...
go test -count=1 -run 'TestImportRules' ./cmd/stageline
command -v "$CLANG" >/dev/null || { echo "$CLANG is missing: install it (Debian: apt-get install $CLANG llvm-19 libbpf-dev)" >&2; exit 1; }
have=$("$CLANG" -dumpversion)
[ "$have" = "$CLANG_VERSION" ] || { echo "$CLANG is $have, the committed objects were made with $CLANG_VERSION: install that version" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp bpf/*_x86_bpfel.go bpf/*_x86_bpfel.o "$tmp"
go generate ./bpf
for f in {stageline,watch}_x86_bpfel.{go,o}; do
	cmp "bpf/$f" "$tmp/$f" || { echo "bpf/$f was not up to date with its source: commit what make generate makes" >&2; exit 1; }
done
echo "check: ok"
