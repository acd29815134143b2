#!/usr/bin/env bash
# chart.sh [update]: checks the Helm chart with helm and kubeconform out of .bin/
# (`make chart` puts them there). Each set of values in deploy/charttest/values is
# rendered, held against deploy/charttest/golden and against the schemas of
# Kubernetes; update writes the golden files anew. What must be refused is tried too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

helm=${HELM:?set by make} kubeconform=${KUBECONFORM:?set by make}
chart=deploy/helm tests=deploy/charttest
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HELM_CACHE_HOME=$work/cache HELM_CONFIG_HOME=$work/config HELM_DATA_HOME=$work/data

render() { # render CHART VALUES FLAG...: what a cluster would be given
	local from=$1 values=$2
	shift 2
	"$helm" template holdfast "$from" --namespace holdfast --kube-version 1.37.2 -f "$values" "$@"
}

conform() {
	"$kubeconform" -strict -summary -schema-location "$tests/schemas/{{.ResourceKind}}.json" "$@"
}

must_fail() { # must_fail WHY COMMAND...: COMMAND fails and says WHY
	local why=$1
	shift
	if "$@" >"$work/out" 2>&1; then
		echo "passed and should not have: $*" >&2
		exit 1
	fi
	if ! grep -q -e "$why" "$work/out"; then
		echo "failed, but not because of \"$why\": $*" >&2
		cat "$work/out" >&2
		exit 1
	fi
}

for values in "$tests"/values/*.yaml; do
	name=$(basename "$values" .yaml)
	echo "--- $name"
	"$helm" lint --strict --quiet --kube-version 1.37.2 -f "$values" "$chart"
	render "$chart" "$values" >"$work/$name.yaml"
	if [ "${1:-}" = update ]; then
		cp "$work/$name.yaml" "$tests/golden/$name.yaml"
	elif ! diff -u "$tests/golden/$name.yaml" "$work/$name.yaml"; then
		echo "$name renders otherwise than deploy/charttest/golden/$name.yaml; if it should, run scripts/chart.sh update (make chart-update)" >&2
		exit 1
	fi
	conform "$work/$name.yaml"
done

echo "--- what must be refused"
# A chart that helm alone passes: a member that Kubernetes does not know, a word
# where it wants a number.
cp -r "$chart" "$work/broken"
sed -i 's/^  replicas: /  replicaz: /' "$work/broken/templates/deployment.yaml"
"$helm" lint --strict --quiet -f "$tests/values/redis.yaml" "$work/broken" >/dev/null
render "$work/broken" "$tests/values/redis.yaml" >"$work/broken.yaml"
grep -q replicaz "$work/broken.yaml"
must_fail "replicaz" conform "$work/broken.yaml"
sed 's/containerPort: 8080/containerPort: http/' "$tests/golden/redis.yaml" >"$work/word.yaml"
must_fail "containerPort" conform "$work/word.yaml"

embedded=$tests/values/embedded.yaml redis=$tests/values/redis.yaml
must_fail "replicaCount" render "$chart" "$embedded" --set replicaCount=2
must_fail "belongs to one gateway" render "$chart" "$embedded" --set replicaCount=2 --skip-schema-validation
must_fail "belongs to one gateway" render "$chart" "$embedded" --set autoscaling.enabled=true --skip-schema-validation
must_fail "existingSecret is required" render "$chart" "$redis" --set existingSecret=
must_fail "url" render "$chart" "$redis" --set store.redis.url=redis://user:password@redis:6379
must_fail "GATEWAY_SECRET_KEY" render "$chart" "$redis" --set env.GATEWAY_SECRET_KEY=c2VjcmV0
must_fail "adminFrom" render "$chart" "$redis" --set serviceMonitor.enabled=true
must_fail "replicas" render "$chart" "$redis" --set replicas=2
echo "the chart is fine"
