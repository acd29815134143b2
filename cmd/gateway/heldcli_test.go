package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// runCommand runs the program's command line in this process.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestHeldCommands: an operator finds, checks and resolves held writes from a
// shell.
func TestHeldCommands(t *testing.T) {
	a, shop := shopping(t, byHand(t, embedded(t)), "shop-c@1", vendortest.ShopConfig{Class: vendortest.MarkerOnly, Answer: allLost})
	held := func(args ...string) string {
		t.Helper()
		out, err := runCommand(t, append([]string{"held", "--url", a.base, "--key", a.key}, args...)...)
		require.NoError(t, err, "%s", out)
		return out
	}
	require.Equal(t, "nothing is held\n", held("list"))
	one := a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown").text("action_id")
	two := a.do("shop", "buy", `{"n":2}`).is(423, "outcome_unknown").text("action_id")

	table := held("list")
	require.Regexp(t, `(?m)^ID +CONNECTION +ACTION +AGE +LAPSES IN +WHY +CHECK +BY ITSELF$`, table)
	require.Regexp(t, `(?m)^`+one+` +shop +buy +\d+s +23h59m +cut +lookup +yes$`, table)
	var list []struct{ ID, State string }
	require.NoError(t, json.Unmarshal([]byte(held("list", "--json")), &list))
	require.Len(t, list, 2)
	require.Equal(t, two, list[0].ID)

	shown := held("show", one)
	require.Contains(t, shown, "exactly one record that carries the marker ")
	require.Contains(t, shown, "GET http://")
	require.Contains(t, held("check", one), "succeeded\nThis write was done")
	eventually(t, 10*time.Second, "the vendor may not be doing it any more", func() bool {
		left := a.must(200, "GET", "/v1/actions/"+two, nil)
		sent, err := time.Parse(time.RFC3339, left.text("created_at"))
		require.NoError(t, err)
		return time.Since(sent) > 3*time.Second
	})
	require.Contains(t, held("resolve", two, "--outcome", "not_performed", "--note", "asked them"), "resolved asked them")
	require.Equal(t, "nothing is held\n", held("list"))
	require.Equal(t, map[string]int{"1": 1, "2": 1}, shop.Effects())

	_, err := runCommand(t, "held", "check", one, "--url", a.base, "--key", a.key)
	require.ErrorContains(t, err, "not_held")
	t.Setenv(envURL, a.base)
	t.Setenv(envKey, a.key)
	out, err := runCommand(t, "held", "list")
	require.NoError(t, err)
	require.Equal(t, "nothing is held\n", out)
	_, err = loadConfig(nil, []string{envURL + "=x", envKey + "=y"}, "")
	require.NoError(t, err, "serve does not take them for settings")
}

// TestHeldCommandsAreStrict: what cannot be followed is a usage error, before
// any call.
func TestHeldCommandsAreStrict(t *testing.T) {
	at := []string{"--url", "http://127.0.0.1:1", "--key", "hf_x"}
	for _, args := range [][]string{
		{"list"},
		{"list", "--url", "gateway.example", "--key", "hf_x"},
		{"list", "--url", "http://127.0.0.1:1"},
		append([]string{"show"}, at...),
		append([]string{"check", "req_1"}, at...),
		append([]string{"resolve", "act_1", "--note", "x"}, at...),
		append([]string{"resolve", "act_1", "--outcome", "succeeded"}, at...),
		append([]string{"resolve", "act_1", "--outcome", "not_performed", "--note", "x", "--result", "1"}, at...),
		append([]string{"resolve", "act_1", "--outcome", "succeeded", "--note", "x", "--result", "{"}, at...),
	} {
		_, err := runCommand(t, append([]string{"held"}, args...)...)
		var usage usageError
		require.ErrorAs(t, err, &usage, "%v", args)
	}
}
