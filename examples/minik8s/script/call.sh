#!/usr/bin/env bash
# Call a function: call.sh NAME ARGUMENT
# Prints the result, or, when it takes longer, the id for get-result.sh.
set -euo pipefail

[ $# = 2 ] || { echo "usage: $0 NAME ARGUMENT" >&2; exit 2; }
curl --silent --show-error --fail-with-body -X POST \
  "http://${API_SERVER:-127.0.0.1}:${PORT:-8080}/api/funcs/$1" --data-binary "$2"
echo
