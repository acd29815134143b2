package redisstore

import (
	"fmt"
	"strconv"
	"strings"
)

// facts are the lines of a server's INFO reply
// (https://redis.io/docs/latest/commands/info/).
type facts map[string]string

func parseInfo(text string) facts {
	f := facts{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		if ok && !strings.HasPrefix(name, "#") {
			f[name] = value
		}
	}
	return f
}

// faults says in plain words what makes a server unfit to be a store. Settings
// are those of CONFIG GET that could be read.
func (f facts) faults(a ack, settings map[string]string) []string {
	if f["loading"] != "0" {
		return []string{"redis is still loading its data"}
	}
	var why []string
	if major, _, _ := strings.Cut(f["redis_version"], "."); atoi(major) < 7 {
		why = append(why, "redis must be version 7 or later")
	}
	if f["role"] != "master" {
		why = append(why, "this redis is a replica: it can be read only, and lags")
	}
	if policy := f["maxmemory_policy"]; policy != "noeviction" {
		why = append(why, "maxmemory-policy must be noeviction, or redis drops claims when memory is short; it is "+
			orUnknown(policy))
	}
	switch attached := f.replicas(); {
	case a.mode == byReplicas && attached < a.replicas:
		why = append(why, fmt.Sprintf("GATEWAY_REDIS_ACK asks for %d replicas, and %d are attached and in step", a.replicas, attached))
	case a.mode == byAOF, a.mode == byAuto && attached == 0:
		why = append(why, f.unsynced(settings)...)
	}
	return why
}

// replicas counts the replicas that follow this master. One that is still
// being brought up to date does not count.
func (f facts) replicas() int {
	n := 0
	for name, value := range f {
		number, ok := strings.CutPrefix(name, "slave")
		if _, err := strconv.Atoi(number); ok && err == nil && strings.Contains(value+",", "state=online,") {
			n++
		}
	}
	return n
}

// unsynced says why an answer of this server does not mean that the step is on
// its disk.
func (f facts) unsynced(settings map[string]string) []string {
	synced := f["aof_enabled"] == "1" &&
		settings["appendfsync"] == "always" &&
		settings["no-appendfsync-on-rewrite"] == "no"
	if !synced {
		return []string{"redis does not sync each write to disk (appendonly yes, appendfsync always, no-appendfsync-on-rewrite no), " +
			"and no replica is attached to wait for; GATEWAY_REDIS_ACK=none accepts that, at the risk that a crash or failover of redis " +
			"loses a claim and the same write is made twice"}
	}
	if status := f["aof_last_write_status"]; status != "ok" {
		return []string{"redis cannot write its append-only file"}
	}
	return nil
}

func orUnknown(s string) string {
	if s == "" {
		return "not known"
	}
	return s
}

// atoi returns zero for what is no number.
func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
