#!/bin/sh
set -eu
cd "$(dirname "$0")/.."
mkdir -p bin
${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -pthread -o bin/refpipe-stage cmd/refpipe/stage/*.c
go build -o bin/refpipe ./cmd/refpipe
