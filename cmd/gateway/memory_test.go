package main

import (
	"math"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestMemoryLimit(t *testing.T) {
	const meminfo = "MemTotal:        8000000 kB\nMemFree:          100 kB\n"
	const machine = 8_000_000 << 10
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing to read": {nil, math.MaxInt64},
		"a machine":       {map[string]string{"proc/meminfo": meminfo}, machine},
		"a container that sees itself as the root": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n",
		}, 512 << 20},
		"a container that is named as on the host": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/docker/0a1b\n", "sys/fs/cgroup/memory.max": "536870912\n",
		}, 512 << 20},
		"a unit in a slice that allows less": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/holdfast.service\n",
			"sys/fs/cgroup/system.slice/holdfast.service/memory.max": "2147483648\n",
			"sys/fs/cgroup/system.slice/memory.max":                  "1073741824\n",
		}, 1 << 30},
		"no limit": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n",
		}, machine},
		"version 1": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "12:cpu,cpuacct:/x\n7:memory:/x\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "268435456\n",
		}, 256 << 20},
		"version 1, no limit": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "7:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, machine},
		"what is none of it": {map[string]string{
			"proc/meminfo": "MemTotal: much kB\n", "proc/self/cgroup": "x\n0::/../..\n", "sys/fs/cgroup/memory.max": "-1\n",
		}, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, text := range c.files {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
			require.Equal(t, c.want, memoryLimit(root))
		})
	}
}
