#!/usr/bin/env bash
# The result of a call that took longer: get-result.sh ID
set -euo pipefail

[ $# = 1 ] || { echo "usage: $0 ID" >&2; exit 2; }
curl --silent --show-error --fail-with-body \
  "http://${API_SERVER:-127.0.0.1}:${PORT:-8080}/api/funcs/$1"
echo
