#!/bin/sh
# Makes one write through Holdfast, at most once, with curl.
#
#   GATEWAY_URL=http://localhost:8080 GATEWAY_KEY=hf_... \
#     do.sh CONNECTION ACTION BODY [IDEMPOTENCY-KEY]
#
# Ends with 0: done; 1: not done; 2: wrong usage; 3: it may have been done, so do not
# send it again in other words or under another key; 4: GATEWAY_PATIENCE (120 seconds)
# is over, so run the very same command again.
set -eu
if [ $# -ne 3 ] && [ $# -ne 4 ]; then
	sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
answer=$(mktemp)
headers=$(mktemp)
trap 'rm -f "$answer" "$headers"' EXIT

# Made once: every attempt sends these bytes under this key, so that all of them are
# one write.
request="{\"connection\":\"$1\",\"action\":\"$2\",\"body\":$3}"
own_key=${4:-}

# Headers go through standard input: arguments can be seen by everybody on the machine.
attempt() {
	{
		printf 'header = "Authorization: Bearer %s"\n' "$GATEWAY_KEY"
		[ -z "$own_key" ] || printf 'header = "Idempotency-Key: %s"\n' "$own_key"
	} | curl --silent --config - --max-time 60 --header 'Content-Type: application/json' \
		--data-binary "$request" --dump-header "$headers" --output "$answer" \
		--write-out '%{http_code}' "$GATEWAY_URL/v1/do" || :
}

# The first member of that name. Within a string its quotes would be escaped.
member() { grep -o "\"$1\":\"[^\"]*\"" "$answer" | head -n 1 | cut -d '"' -f 4; }

wait=1
over=$(($(date +%s) + ${GATEWAY_PATIENCE:-120}))
while :; do
	: >"$answer"
	: >"$headers"
	status=$(attempt)
	# What a broken connection or somebody else's page says is nothing: it counts as
	# no answer, and repeating finds out.
	next=$(member next)
	[ "$status" != 200 ] || next=$(member state)
	case $status:$next in
	200:succeeded)
		cat "$answer"
		exit 0
		;;
	200:* | *:wait_and_repeat | *:get_action | *:) ;;
	423:* | 500:*)
		cat "$answer" >&2
		exit 3
		;;
	*)
		cat "$answer" >&2
		exit 1
		;;
	esac
	asked=$(sed -n 's/^[Rr]etry-[Aa]fter: *\([0-9][0-9]*\).*/\1/p' "$headers")
	if [ $(($(date +%s) + ${asked:-$wait})) -gt "$over" ]; then
		echo "no end in sight ($status): run the very same command again" >&2
		exit 4
	fi
	sleep "${asked:-$wait}"
	[ "$wait" -ge 30 ] || wait=$((wait * 2))
done
