#!/usr/bin/env bash
# Upload a function: uploader.sh FILE.env
# The file names the server too (API_SERVER, PORT); TEMPLATE_METHOD is for updater.sh.
set -euo pipefail

[ $# = 1 ] || { echo "usage: $0 FILE.env" >&2; exit 2; }
[ -r "$1" ] || { echo "$0: cannot read $1" >&2; exit 2; }
set -a
# shellcheck source=/dev/null
. "$1"
set +a
for needed in API_SERVER PORT NAME MAIN; do
  [ -n "${!needed:-}" ] || { echo "$0: $needed is missing in $1" >&2; exit 2; }
done

encoded() { [ -z "$1" ] || base64 -w0 "$1"; }

body=$(printf '{"apiVersion": "%s", "kind": "Func", "metadata": {"name": "%s"}, "spec": {"name": "%s",
  "function": "%s", "preRun": "%s", "left": "%s", "right": "%s", "serviceAddress": "%s"}}' \
  "${VERSION:-v1}" "$NAME" "$NAME" "$(encoded "$MAIN")" "$(encoded "${PRE_RUN:-}")" \
  "${LEFT_BRANCH:-}" "${RIGHT_BRANCH:-}" "${ADDR:-}")
url="http://$API_SERVER:$PORT/api/funcs/template"
[ "${TEMPLATE_METHOD:-POST}" = POST ] || url="$url/$NAME"
curl --silent --show-error --fail-with-body -X "${TEMPLATE_METHOD:-POST}" "$url" --data "$body"
echo
