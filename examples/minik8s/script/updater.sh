#!/usr/bin/env bash
# Change a function that was uploaded: updater.sh FILE.env
set -euo pipefail

TEMPLATE_METHOD=PUT exec "$(dirname "$0")/uploader.sh" "$@"
